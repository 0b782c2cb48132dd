//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeper is one ZooKeeper 3.8.4 server.
type zookeeper struct {
	port int
	proc *proc
	once sync.Once
	conn *zk.Conn
}

func (z *zookeeper) addr() string { return "127.0.0.1:" + strconv.Itoa(z.port) }

// sharedZooKeeper is one server for the whole run; every broker has a chroot of
// its own in it.
func sharedZooKeeper(t testing.TB) *zookeeper {
	t.Helper()
	sharedZK.Do(func() { sharedZKServer, errSharedZK = startZooKeeper(t, tempDir(t, "zookeeper")) })
	if errSharedZK != nil {
		t.Fatal(errSharedZK)
	}
	return sharedZKServer
}

var (
	sharedZK       sync.Once
	sharedZKServer *zookeeper
	errSharedZK    = errors.New("ZooKeeper did not start")
)

// ownZooKeeper is a server of one test's own.
func ownZooKeeper(t testing.TB) *zookeeper {
	t.Helper()
	z, err := startZooKeeper(t, tempDir(t, "zookeeper"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if z.conn != nil {
			z.conn.Close()
		}
		z.proc.kill()
	})
	return z
}

func startZooKeeper(t testing.TB, dir string) (*zookeeper, error) {
	jars, err := serverJars()
	if err != nil {
		return nil, err
	}
	z := &zookeeper{port: freePort(t)}
	// Short ticks: sessions of killed brokers expire within seconds.
	cfg := fmt.Sprintf("tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\nadmin.enableServer=false\n"+
		"4lw.commands.whitelist=srvr\nmaxClientCnxns=0\nforceSync=no\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%d\n", dir, z.port)
	path := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(path, []byte(cfg), 0o644); err != nil {
		return nil, err
	}
	argv := javaCommand(128, jars+"/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", path)
	z.proc, err = startProc("zookeeper", filepath.Join(dir, "zookeeper.log"), argv...)
	if err != nil {
		return nil, err
	}
	eventually(t, 30*time.Second, "ZooKeeper serves", func() error {
		if z.proc.exited() {
			printLog(t, z.proc.logPath, 0)
			t.Fatal("ZooKeeper ended at its start")
		}
		return z.serves()
	})
	return z, nil
}

// serves asks the server what it is. It listens before it serves, and a session
// that is asked for in between gets no answer, which costs a client its time-out.
func (z *zookeeper) serves() error {
	c, err := net.DialTimeout("tcp", z.addr(), time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("srvr")); err != nil {
		return err
	}
	said, err := io.ReadAll(c)
	if err == nil && !strings.Contains(string(said), "Mode: ") {
		err = fmt.Errorf("%q", said)
	}
	return err
}

// client is the harness's own session.
func (z *zookeeper) client(t testing.TB) *zk.Conn {
	t.Helper()
	z.once.Do(func() {
		conn, _, err := zk.Connect([]string{z.addr()}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		z.conn = conn
	})
	return z.conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// znode reads one znode below the broker's chroot.
func (b *broker) znode(t testing.TB, path string) (string, *zk.Stat) {
	t.Helper()
	data, stat, err := b.zk.client(t).Get(b.chroot() + path)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	return string(data), stat
}

// children lists the children of a znode below the broker's chroot.
func (b *broker) children(t testing.TB, path string) []string {
	t.Helper()
	names, _, err := b.zk.client(t).Children(b.chroot() + path)
	if err != nil {
		t.Fatalf("children of %s: %v", path, err)
	}
	return names
}
