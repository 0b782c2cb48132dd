//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	consumerGroups     = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	verifiableConsumer = "org.apache.kafka.tools.VerifiableConsumer"
	verifiableProducer = "org.apache.kafka.tools.VerifiableProducer"
)

// rowOf is the first line of a tool's table that begins with those fields.
func rowOf(out string, fields ...string) []string {
	for _, line := range lines(out) {
		row := strings.Fields(line)
		if len(row) >= len(fields) && slices.Equal(row[:len(fields)], fields) {
			return row
		}
	}
	return nil
}

// Kafka's command for groups: what it lists and describes, with and without
// members, and what it changes.
func TestToolConsumerGroupCommand(t *testing.T) {
	slow(t)
	b := sharedGroups(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	for p := range int32(2) {
		for i := range 10 {
			produce(t, w, topic, p, batch{recs: values(now+int64(1000*i), "v")}.bytes())
		}
	}
	group := topic + ".g"
	cmd := func(args ...string) string {
		t.Helper()
		return tool(t, consumerGroups, append([]string{"--bootstrap-server", b.addr(), "--timeout", "60000", "--group", group}, args...)...)
	}
	committed := func(want ...int64) {
		t.Helper()
		for p, offset := range want {
			if got := committedOffset(t, w, group, topic, int32(p)); got != offset {
				t.Errorf("partition %d: committed %d, want %d", p, got, offset)
			}
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out, err := tryTool(t, "", consumerGroups, append([]string{"--bootstrap-server", b.addr(), "--timeout", "60000", "--group", group}, args...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%v: %v, want %q in\n%s", args, err, want, out)
		}
	}

	m := newMember(t, b, group)
	m.session = 60000 // the tools take their time
	m.protocols = protocols("range", subscription(topic))
	m.join()
	m.sync(assignment(topic, 0, 1), m.id, assignment(topic, 0, 1))
	wantCode(t, "commit", commitCode(t, w, m.commit(commitOne{topic: topic, offset: 4})), errNone)
	listed := tool(t, consumerGroups, "--bootstrap-server", b.addr(), "--list", "--state", "--type")
	if row := rowOf(listed, group); !slices.Equal(row, []string{group, "Classic", "Stable"}) {
		t.Errorf("listed as %q in\n%s", row, listed)
	}
	described := cmd("--describe")
	if row := rowOf(described, group, topic, "0"); !slices.Equal(row[3:], []string{"4", "10", "6", m.id, "/127.0.0.1", "integration"}) {
		t.Errorf("described as %q in\n%s", row, described)
	}
	if row := rowOf(described, group, topic, "1"); !slices.Equal(row[3:], []string{"-", "10", "-", m.id, "/127.0.0.1", "integration"}) {
		t.Errorf("described as %q in\n%s", row, described)
	}
	members := cmd("--describe", "--members", "--verbose")
	if row := rowOf(members, group, m.id); !slices.Equal(row[2:], []string{"/127.0.0.1", "integration", "2", "(0,1)"}) {
		t.Errorf("members: %q in\n%s", row, members)
	}
	state := cmd("--describe", "--state")
	if row := rowOf(state, group); !slices.Equal(row[1:], []string{b.addr(), "(1)", "range", "Stable", "1"}) {
		t.Errorf("state: %q in\n%s", row, state)
	}
	refused("group is not empty", "--delete")
	refused("Assignments can only be reset if the group '"+group+"' is inactive", "--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
	refused("GroupSubscribedToTopicException", "--delete-offsets", "--topic", topic)
	m.leave()

	reset := func(args ...string) string {
		t.Helper()
		return cmd(append([]string{"--reset-offsets", "--topic", topic}, args...)...)
	}
	dry := reset("--to-latest", "--dry-run")
	for p := range 2 { // 3.9.2 ends no line of this table
		wantMatch(t, "dry run", dry, regexp.QuoteMeta(topic)+fmt.Sprintf(` +%d +10 `, p))
	}
	committed(4, -1)
	reset("--to-earliest", "--execute")
	committed(0, 0)
	reset("--shift-by", "3", "--execute")
	committed(3, 3)
	reset("--to-offset", "8", "--execute")
	committed(8, 8)
	reset("--to-datetime", time.UnixMilli(now+4500).UTC().Format("2006-01-02T15:04:05.000"), "--execute")
	committed(5, 5)
	wantMatch(t, "csv", reset("--to-latest", "--dry-run", "--export"), regexp.QuoteMeta(`"`+topic+`",0,10`)+`|`+regexp.QuoteMeta(topic+`,0,10`))
	tool(t, consumerGroups, "--bootstrap-server", b.addr(), "--group", group, "--reset-offsets", "--topic", topic+":1", "--to-current", "--execute")
	committed(5, 5)

	wantMatch(t, "delete offsets", cmd("--delete-offsets", "--topic", topic+":0"), `(?s)Request succeed for deleting offsets.*Successful`)
	committed(-1, 5)
	if row := rowOf(cmd("--describe", "--state"), group); len(row) < 4 || !slices.Contains(row, "Empty") {
		t.Errorf("state: %q", row)
	}
	wantMatch(t, "delete", cmd("--delete"), `Deletion of requested consumer groups \('`+regexp.QuoteMeta(group)+`'\) was successful`)
	refused("GroupIdNotFoundException", "--delete")
	committed(-1, -1)
	refused("does not exist", "--describe")
}

// assignment is what the consumer protocol gives a member.
func assignment(topic string, partitions ...int32) string {
	var a kmsg.ConsumerMemberAssignment
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: partitions}}
	return string(a.AppendTo(nil))
}

// The console consumer in a group commits what it has read.
func TestToolConsoleConsumerGroup(t *testing.T) {
	slow(t)
	b := sharedGroups(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 1)
	for i := range 5 {
		produce(t, w, topic, 0, batch{recs: values(now, fmt.Sprint("value ", i))}.bytes())
	}
	read := func(n string) []string {
		t.Helper()
		out := tool(t, consoleConsumer, "--bootstrap-server", b.addr(), "--topic", topic, "--group", topic+".g", "--from-beginning", "--max-messages", n,
			"--timeout-ms", "30000", "--consumer-property", "session.timeout.ms=10000")
		return slices.DeleteFunc(lines(out), func(line string) bool { return !strings.HasPrefix(line, "value ") })
	}
	wantStrings(t, "first", read("3"), []string{"value 0", "value 1", "value 2"})
	if got := committedOffset(t, w, topic+".g", topic, 0); got != 3 {
		t.Errorf("committed %d, want 3", got)
	}
	wantStrings(t, "then", read("2"), []string{"value 3", "value 4"})
	if got := committedOffset(t, w, topic+".g", topic, 0); got != 5 {
		t.Errorf("committed %d, want 5", got)
	}
	out := tool(t, getOffsetShell, "--bootstrap-server", b.addr(), "--topic", "__consumer_offsets", "--time", "latest")
	written := 0
	for _, line := range lines(out) {
		if parts := strings.Split(line, ":"); len(parts) == 3 && parts[0] == "__consumer_offsets" {
			n, err := strconv.Atoi(parts[2])
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			written += n
		}
	}
	if written < 4 {
		t.Errorf("%d records in __consumer_offsets:\n%s", written, out)
	}
}

// The verifiable producer and consumer of Kafka's system tests.
func TestToolVerifiable(t *testing.T) {
	slow(t)
	b := sharedGroups(t)
	w, topic := dial(t, b), topicName(t)
	createTopic(t, b, topic, 2)
	out := tool(t, verifiableProducer, "--bootstrap-server", b.addr(), "--topic", topic, "--max-messages", "200", "--acks", "-1")
	wantMatch(t, "producer", out, `"acked":200`)
	out = tool(t, verifiableConsumer, "--bootstrap-server", b.addr(), "--topic", topic, "--group-id", topic+".g", "--max-messages", "200",
		"--reset-policy", "earliest", "--session-timeout", "10000", "--verbose")
	consumed, assigned := 0, 0
	for _, line := range lines(out) {
		var said struct {
			Name       string
			Count      int
			Success    bool
			Partitions []struct{ Partition int }
		}
		if json.Unmarshal([]byte(line), &said) != nil {
			continue
		}
		switch said.Name {
		case "records_consumed":
			consumed += said.Count
		case "partitions_assigned":
			assigned = len(said.Partitions)
		case "offsets_committed":
			if !said.Success {
				t.Errorf("commit failed: %s", line)
			}
		}
	}
	if consumed != 200 || assigned != 2 {
		t.Errorf("%d records consumed, %d partitions assigned:\n%s", consumed, assigned, out)
	}
	// All of it may have gone to one partition.
	if got := max(committedOffset(t, w, topic+".g", topic, 0), 0) + max(committedOffset(t, w, topic+".g", topic, 1), 0); got != 200 {
		t.Errorf("committed %d in all, want 200", got)
	}
}
