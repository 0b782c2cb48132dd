package compare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/bench/topics"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The brokers that can be compared.
const (
	Kbroker  = "kbroker"
	Kafka    = "kafka"
	Skeleton = "skeleton"
	// SkeletonPread answers Fetch with pread and write.
	SkeletonPread = "skeleton-pread"
)

// subject is one broker, running, with a directory of its own.
type subject struct {
	name    string
	c       *comparison
	dir     string
	addr    string
	argv    []string
	proc    *proc
	started time.Duration // until it listened
}

// shipped is the server.properties that comes with Kafka, as far as it sets
// anything.
const shipped = `broker.id=1
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
`

// ours are the settings for the sake of the comparison: topics come and go by
// order, deleted ones leave the page cache before the next run, and a broker
// that is stopped for minutes keeps its session.
const ours = `auto.create.topics.enable=false
log.segment.delete.delay.ms=100
zookeeper.session.timeout.ms=3600000
`

// newSubject lays a broker out in a fresh directory; topics of the skeleton
// have so many partitions.
func (c *comparison) newSubject(name string, partitions int32) (*subject, error) {
	c.serial++
	s := &subject{name: name, c: c, dir: filepath.Join(c.dir, fmt.Sprintf("%02d-%s", c.serial, name))}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s.addr = "127.0.0.1:" + strconv.Itoa(port)
	switch name {
	case Skeleton, SkeletonPread:
		s.argv = []string{c.skeleton, "--listen", s.addr, "--dir", s.data(), "--partitions", strconv.Itoa(int(partitions))}
		if name == SkeletonPread {
			s.argv = append(s.argv, "--pread")
		}
		return s, nil
	}
	props := shipped + ours + "listeners=PLAINTEXT://" + s.addr + "\nlog.dirs=" + s.data() + "\n"
	file := filepath.Join(s.dir, "server.properties")
	if name == Kafka {
		props += fmt.Sprintf("zookeeper.connect=%s/run-%d\n", c.zooKeeperAddr, c.serial)
		s.argv = c.java(jvmFlags, "kafka.Kafka", file)
	} else {
		s.argv = []string{c.kbroker, file}
	}
	return s, os.WriteFile(file, []byte(props), 0o644)
}

func (s *subject) data() string { return filepath.Join(s.dir, "data") }

// start starts the broker, notes when it listened, and waits until it answers.
func (s *subject) start(ctx context.Context) error {
	began := time.Now()
	p, err := startProc(filepath.Join(s.dir, "log"), pinned(brokerCore, s.argv...)...)
	if err != nil {
		return err
	}
	s.proc = p
	for s.started = 0; ; time.Sleep(200 * time.Microsecond) {
		nc, err := net.Dial("tcp", s.addr)
		if err == nil {
			s.started = time.Since(began)
			err = answers(nc)
			nc.Close()
			if err == nil {
				return s.ready(ctx)
			}
		}
		if p.exited() || time.Since(began) > 3*time.Minute {
			return fmt.Errorf("%s does not start: %w\n%s", s.name, err, p.tail())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// answers makes an ApiVersions request.
func answers(nc net.Conn) error {
	req := kmsg.NewPtrApiVersionsRequest()
	if err := nc.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := nc.Write(protocol.AppendRequest(nil, "bench", 1, req)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(nc, size[:]); err != nil {
		return err
	}
	frame := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	if _, err := io.ReadFull(nc, frame); err != nil {
		return err
	}
	_, _, err := protocol.DecodeResponse(req, frame)
	return err
}

// ready waits until the broker takes orders: it has a controller.
func (s *subject) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		_, err := topics.Ensure(ctx, s.addr, "bench-ready", 1, 1)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: no topic can be made: %w\n%s", s.name, err, s.proc.tail())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// pause stops the broker while another one is measured.
func (s *subject) pause() { s.proc.signal(syscall.SIGSTOP) }

// resume lets it go on, and lets it do first what it has missed.
func (s *subject) resume() {
	s.proc.signal(syscall.SIGCONT)
	time.Sleep(300 * time.Millisecond)
}

// stop ends the broker as an operator does.
func (s *subject) stop() error {
	s.proc.signal(syscall.SIGTERM)
	select {
	case <-s.proc.done:
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%s does not stop\n%s", s.name, s.proc.tail())
	}
}

// end kills the broker and removes its directory.
func (s *subject) end() {
	if s.proc != nil {
		s.proc.kill()
	}
	_ = os.RemoveAll(s.dir)
}

// memory is the resident memory now.
func (s *subject) memory() (int64, error) {
	rss, _, err := result.Memory(s.proc.pid())
	return rss, err
}

// drop deletes a topic and waits until its files are gone, and with them their
// part of the page cache.
func (s *subject) drop(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := topics.Delete(ctx, s.addr, topic); err != nil {
		return fmt.Errorf("%s: delete %s: %w", s.name, topic, err)
	}
	for {
		entries, err := os.ReadDir(s.data())
		if err != nil {
			return err
		}
		left := 0
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), topic+"-") {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: %d directories of %s are left", s.name, left, topic), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
