package broker

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
)

var rewriteFrames = flag.Bool("rewrite-frames", false, "write testdata/frames.txt anew")

// recorded are the requests that Apache Kafka 3.9.2 controllers, leaders and
// followers sent to broker 3 of their cluster, in an order in which they make
// sense. Those that a broker sends itself are not among them.
var recorded = []string{
	"update-metadata-v8-request",
	"leader-and-isr-v7-request-new-replica",
	"leader-and-isr-v7-request-leader",
	"fetch-v17-request-full",
	"fetch-v17-request-diverged",
	"fetch-v17-request-incremental-idle", // of sessions that this broker never had
	"fetch-v17-request-incremental-moved",
	"fetch-v17-request-forget",
	"offset-for-leader-epoch-v3-request",
	"list-offsets-v9-request",
	"write-txn-markers-v1-request",
	"add-partitions-to-txn-v5-request",
	"stop-replica-v4-request-shutdown",
	"leader-and-isr-v7-request-no-leader", // a later controller
	"leader-and-isr-v7-request-isr-shrunk",
	"update-metadata-v8-request-deleted",
	"stop-replica-v4-request-deletion",
	"leader-and-isr-v7-request-new-topic", // and later still
	"leader-and-isr-v7-request-new-topic", // as 3.9 repeats it
	"stop-replica-v4-request-moved-away",
	"leader-and-isr-v4-request-ibp26",
	"leader-and-isr-v7-request-leader", // of the first: refused
	"alter-partition-v3-request",
	"allocate-producer-ids-v0-request",
	"controlled-shutdown-v3-request",
}

// TestAnswersRecordedFrames sends each byte for byte and compares what is
// answered with testdata/frames.txt.
func TestAnswersRecordedFrames(t *testing.T) {
	c := newCluster(t, 0, nil)
	c.values = config.Values{"broker.id": "3"}
	b := c.start(3)
	conn, err := net.Dial("tcp", b.Addr("PLAINTEXT").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out strings.Builder
	for _, name := range recorded {
		fmt.Fprintf(&out, "%s\n%s\n\n", name, exchange(t, conn, name))
	}
	path := filepath.Join("testdata", "frames.txt")
	if *rewriteFrames {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("%s differs; look at it, and run the test with -rewrite-frames if it is right. Now:\n%s", path, out.String())
	}
}

// exchange sends a recorded request and describes its answer.
func exchange(t *testing.T, conn net.Conn, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "protocol", "testdata", "frames", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	frame, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if binary.BigEndian.Uint32(frame) != uint32(len(frame)-4) {
		frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	}
	h, body, err := protocol.ParseHeader(frame[4:])
	if err != nil {
		t.Fatal(err)
	}
	req, err := protocol.DecodeRequest(h, body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	size := make([]byte, 4)
	if _, err := io.ReadFull(conn, size); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	_, resp, err := protocol.DecodeResponse(req, answer)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	j, err := json.Marshal(resp)
	if err != nil {
		t.Fatal(err)
	}
	return sessionID.ReplaceAllString(string(j), `"SessionID":"some"`)
}

var sessionID = regexp.MustCompile(`"SessionID":[1-9][0-9]*`)
