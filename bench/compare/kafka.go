package compare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// KafkaVersion is the version that the table compares with.
const KafkaVersion = "3.9.2"

// kafkaJars is the directory with the jars of Apache Kafka and its ZooKeeper:
// the one that the integration tests use, filled from the same POM.
func kafkaJars(ctx context.Context, root string) (string, error) {
	pom := filepath.Join(root, "integration", "java", "server", "pom.xml")
	text, err := os.ReadFile(pom)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	dir := filepath.Join(root, ".cache", "integration", "kafka-"+KafkaVersion)
	stamp, want := filepath.Join(dir, ".made-from"), hex.EncodeToString(sum[:])
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the jars of Apache Kafka: mvn: %w\n%s", err, out)
	}
	return dir, os.WriteFile(stamp, []byte(want), 0o644)
}

// jvmFlags are those of Kafka's start script, with its heap.
var jvmFlags = []string{"-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

func (c *comparison) java(flags []string, args ...string) []string {
	argv := append([]string{"java"}, flags...)
	argv = append(argv, "-Dlog4j.configuration=file:"+filepath.Join(c.o.Root, "integration", "java", "log4j.properties"), "-cp", c.jars+"/*")
	return append(argv, args...)
}

// startZooKeeper starts the one ZooKeeper of the run. It lets sessions live
// long, since brokers are stopped for minutes while others are measured. tick is
// its tickTime.
func (c *comparison) startZooKeeper(tick int) error {
	dir := filepath.Join(c.dir, "zookeeper")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	cfg := fmt.Sprintf("tickTime=%d\nmaxSessionTimeout=3600000\nadmin.enableServer=false\nmaxClientCnxns=0\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%d\n", tick, dir, port)
	path := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(path, []byte(cfg), 0o644); err != nil {
		return err
	}
	c.zooKeeper, err = startProc(filepath.Join(c.dir, "zookeeper.log"), pinned(clientCore, c.java([]string{"-Xms128M", "-Xmx128M", "-XX:+UseSerialGC"},
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", path)...)...)
	if err != nil {
		return err
	}
	c.zooKeeperAddr = "127.0.0.1:" + strconv.Itoa(port)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err := serves(c.zooKeeperAddr)
		if err == nil {
			return nil
		}
		if c.zooKeeper.exited() || time.Since(began) > 2*time.Minute {
			return fmt.Errorf("ZooKeeper does not start: %w\n%s", err, c.zooKeeper.tail())
		}
	}
}

// serves asks a ZooKeeper how it is. One that only listens leaves whoever
// connects without an answer.
func serves(addr string) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := nc.Write([]byte("srvr")); err != nil {
		return err
	}
	answer, err := io.ReadAll(nc)
	if err == nil && !strings.Contains(string(answer), "Mode:") {
		err = fmt.Errorf("srvr: %q", answer)
	}
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
