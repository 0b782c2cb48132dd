package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// member is one broker with its directory; it can be started and ended many
// times.
type member struct {
	id   int
	kind string // kbroker or kafka
	at   place
	port int
	dir  string
	proc *proc
	runs int
}

func (m *member) String() string { return fmt.Sprintf("broker %d", m.id) }
func (m *member) addr() string   { return net.JoinHostPort(m.at.host, strconv.Itoa(m.port)) }
func (m *member) data() string   { return filepath.Join(m.dir, "data") }

// cluster is the brokers and their ZooKeeper.
type cluster struct {
	o       *options
	dir     string
	members []*member

	zkAt   place
	zkPort int
	zkProc *proc
	zkRuns int
	conn   *zk.Conn // the drill's own session, only to look
}

func newCluster(o *options, dir string, places map[string]place) (*cluster, error) {
	c := &cluster{o: o, dir: dir, zkAt: places["zookeeper"]}
	var err error
	if c.zkPort, err = c.zkAt.port(2181); err != nil {
		return nil, err
	}
	for i, kind := range o.kinds {
		name := fmt.Sprintf("broker-%d", i+1)
		m := &member{id: i + 1, kind: kind, at: places[name], dir: filepath.Join(dir, name)}
		if m.port, err = m.at.port(9092); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(m.data(), 0o755); err != nil {
			return nil, err
		}
		c.members = append(c.members, m)
	}
	return c, os.MkdirAll(filepath.Join(dir, "zookeeper"), 0o755)
}

// start brings up ZooKeeper and all brokers.
func (c *cluster) start(ctx context.Context) error {
	if err := c.startZooKeeper(ctx); err != nil {
		return err
	}
	// The library waits for the answer to a connect for seven times the session's length.
	conn, _, err := zk.Connect([]string{c.zkAddr()}, 6*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	c.conn = conn
	for _, m := range c.members {
		if err := c.launch(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (c *cluster) zkAddr() string { return net.JoinHostPort(c.zkAt.host, strconv.Itoa(c.zkPort)) }

func (c *cluster) startZooKeeper(ctx context.Context) error {
	dir := filepath.Join(c.dir, "zookeeper")
	cfg := fmt.Sprintf("tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n"+
		"4lw.commands.whitelist=srvr\ndataDir=%s\nclientPortAddress=%s\nclientPort=%d\n", filepath.Join(dir, "data"), c.zkAt.host, c.zkPort)
	path := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(path, []byte(cfg), 0o644); err != nil {
		return err
	}
	c.zkRuns++
	argv := c.java(128, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path)
	p, err := start("ZooKeeper", filepath.Join(dir, fmt.Sprintf("run-%d.log", c.zkRuns)), c.zkAt.command(argv...)...)
	if err != nil {
		return err
	}
	c.zkProc = p
	return eventually(ctx, time.Minute, "ZooKeeper serves", c.zkServes)
}

// zkServes asks ZooKeeper what it is: it listens before it serves.
func (c *cluster) zkServes() error {
	conn, err := net.DialTimeout("tcp", c.zkAddr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return err
	}
	said, err := io.ReadAll(conn)
	if err == nil && !strings.Contains(string(said), "Mode: ") {
		err = fmt.Errorf("it says %q", said)
	}
	return err
}

func (c *cluster) java(heap int, args ...string) []string {
	argv := []string{"java", fmt.Sprintf("-Xms%dM", heap), fmt.Sprintf("-Xmx%dM", heap), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Djava.awt.headless=true", "-Dlog4j.configuration=file:" + filepath.Join(c.dir, "log4j.properties"), "-cp", c.o.kafkaLibs + "/*"}
	return append(argv, args...)
}

const log4j = `log4j.rootLogger=WARN, out
log4j.logger.kafka=INFO
log4j.logger.state.change.logger=INFO
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
`

// properties is the server.properties of a broker: times short enough to be
// waited for, and acked records safe from the loss of one broker.
func (c *cluster) properties(m *member) string {
	props := map[string]string{
		"broker.id":                    strconv.Itoa(m.id),
		"broker.rack":                  rack(m.id),
		"listeners":                    "PLAINTEXT://" + m.addr(),
		"log.dirs":                     m.data(),
		"zookeeper.connect":            c.zkAddr(),
		"zookeeper.session.timeout.ms": strconv.FormatInt(c.o.session.Milliseconds(), 10),
		"replica.lag.time.max.ms":      strconv.FormatInt(c.o.lag.Milliseconds(), 10),
		"replica.selector.class":       "org.apache.kafka.common.replica.RackAwareReplicaSelector",
		"replica.high.watermark.checkpoint.interval.ms": "1000",
		"log.flush.offset.checkpoint.interval.ms":       "3000",
		"log.segment.bytes":                             "200000",
		"log.index.size.max.bytes":                      "65536",
		"min.insync.replicas":                           "2",
		"default.replication.factor":                    "3",
		"unclean.leader.election.enable":                "false",
		"auto.create.topics.enable":                     "false",
		"auto.leader.rebalance.enable":                  "true",
		"leader.imbalance.check.interval.seconds":       "15",
		"leader.imbalance.per.broker.percentage":        "0",
		"controlled.shutdown.retry.backoff.ms":          "500",
		"offsets.topic.num.partitions":                  "3",
		"num.network.threads":                           "2",
		"num.io.threads":                                "4",
		"log.cleaner.dedupe.buffer.size":                "2097152",
		"zookeeper.connection.timeout.ms":               "60000",
		"replica.fetch.backoff.ms":                      "300",
		"replica.socket.timeout.ms":                     "5000",
		"controller.socket.timeout.ms":                  "5000",
		"transaction.state.log.replication.factor":      "3",
		"group.initial.rebalance.delay.ms":              "0",
	}
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&text, "%s=%s\n", k, props[k])
	}
	return text.String()
}

func rack(id int) string { return fmt.Sprintf("r%d", id) }

// launch starts a broker without waiting until it serves. Apache Kafka does not
// start within an old session of its id: that is waited for.
func (c *cluster) launch(ctx context.Context, m *member) error {
	if m.kind == "kafka" {
		if err := c.awaitUnregistered(ctx, m); err != nil {
			return err
		}
	}
	path := filepath.Join(m.dir, "server.properties")
	if err := os.WriteFile(path, []byte(c.properties(m)), 0o644); err != nil {
		return err
	}
	m.runs++
	argv := []string{c.o.kbroker, path}
	if m.kind == "kafka" {
		argv = c.java(320, "kafka.Kafka", path)
	}
	p, err := start(m.String(), filepath.Join(m.dir, fmt.Sprintf("run-%d.log", m.runs)), m.at.command(argv...)...)
	m.proc = p
	return err
}

func (c *cluster) awaitUnregistered(ctx context.Context, m *member) error {
	return eventually(ctx, time.Minute, m.String()+" is not registered any more", func() error {
		found, _, err := c.conn.Exists(fmt.Sprintf("/brokers/ids/%d", m.id))
		if err == nil && found {
			err = fmt.Errorf("it still is")
		}
		return err
	})
}

// terminate ends a broker as an operator does.
func (c *cluster) terminate(m *member) error {
	m.proc.signal(syscall.SIGTERM)
	if !m.proc.await(c.o.heal) {
		return fmt.Errorf("%s did not end within %v of SIGTERM", m, c.o.heal)
	}
	want := map[string]string{"kbroker": "exit status 0", "kafka": "exit status 143"}[m.kind]
	if got := m.proc.exit(); got != want {
		return fmt.Errorf("%s ended with %s after SIGTERM, want %s", m, got, want)
	}
	return nil
}

func (c *cluster) member(id int) *member {
	for _, m := range c.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// others are all members but some.
func (c *cluster) others(but ...*member) (out []*member) {
	for _, m := range c.members {
		if !slices.Contains(but, m) {
			out = append(out, m)
		}
	}
	return out
}

func (c *cluster) bootstrap() (addrs []string) {
	for _, m := range c.members {
		addrs = append(addrs, m.addr())
	}
	return addrs
}

// mend takes away what a drill may have left behind when it ended early: cuts,
// stopped processes, missing ones.
func (c *cluster) mend(ctx context.Context) error {
	for _, at := range append([]place{c.zkAt}, places(c.members)...) {
		if err := at.takeAll(); err != nil {
			return err
		}
	}
	if !c.zkProc.running() {
		if err := c.startZooKeeper(ctx); err != nil {
			return err
		}
	}
	c.zkProc.signal(syscall.SIGCONT)
	for _, m := range c.members {
		if m.proc.running() {
			m.proc.signal(syscall.SIGCONT)
		} else if err := c.launch(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func places(members []*member) (out []place) {
	for _, m := range members {
		out = append(out, m.at)
	}
	return out
}
