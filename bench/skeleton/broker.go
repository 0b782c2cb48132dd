package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type options struct {
	listen     string
	dir        string
	partitions int32
	pread      bool
}

// broker holds every partition that was written to.
type broker struct {
	o    options
	addr *net.TCPAddr

	mu    sync.RWMutex
	parts map[string][]*partition // by topic
}

func newBroker(o options, addr *net.TCPAddr) (*broker, error) {
	return &broker{o: o, addr: addr, parts: map[string][]*partition{}}, os.MkdirAll(o.dir, 0o755)
}

func (b *broker) serve(l net.Listener) error {
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer nc.Close()
			c := &conn{broker: b, tc: nc.(*net.TCPConn)}
			if err := c.run(); err != nil && !errors.Is(err, net.ErrClosed) {
				fmt.Fprintln(os.Stderr, "skeleton:", err)
			}
		}()
	}
}

// topic gives a topic's partitions, which exist as soon as somebody asks.
func (b *broker) topic(name string) []*partition {
	b.mu.RLock()
	t, ok := b.parts[name]
	b.mu.RUnlock()
	if ok {
		return t
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.parts[name]; ok {
		return t
	}
	t = make([]*partition, b.o.partitions)
	for i := range t {
		t[i] = &partition{path: filepath.Join(b.o.dir, fmt.Sprintf("%s-%d.log", name, i))}
	}
	b.parts[name] = t
	return t
}

func (b *broker) partition(topic string, i int32) (*partition, error) {
	if t := b.topic(topic); i >= 0 && int(i) < len(t) {
		return t[i], nil
	}
	return nil, protocol.ErrUnknownTopicOrPartition
}

// remove drops a topic and its files.
func (b *broker) remove(topic string) {
	b.mu.Lock()
	t := b.parts[topic]
	delete(b.parts, topic)
	b.mu.Unlock()
	for _, p := range t {
		p.remove()
	}
}

// partition is one file.
type partition struct {
	path string

	mu     sync.Mutex
	f      *os.File
	next   int64 // offset
	size   int64
	places []place       // of the batches
	grown  chan struct{} // closed at the next append; nil when nobody waits
}

type place struct{ offset, pos int64 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Where a batch's fields are.
const (
	atLength = 8
	atCRC    = 17
	crcFrom  = 21
	atDelta  = 23
)

// append checks, places and writes one batch.
func (p *partition) append(b []byte) (base int64, err error) {
	if len(b) < record.HeaderLen || int(binary.BigEndian.Uint32(b[atLength:])) != len(b)-record.LogOverhead {
		return 0, record.ErrCorrupt
	}
	if crc32.Checksum(b[crcFrom:], castagnoli) != binary.BigEndian.Uint32(b[atCRC:]) {
		return 0, record.ErrCorrupt
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f == nil {
		if p.f, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644); err != nil {
			return 0, err
		}
	}
	base = p.next
	binary.BigEndian.PutUint64(b, uint64(base))
	if _, err := p.f.WriteAt(b, p.size); err != nil {
		return 0, err
	}
	p.places = append(p.places, place{base, p.size})
	p.size += int64(len(b))
	p.next += int64(binary.BigEndian.Uint32(b[atDelta:])) + 1
	if p.grown != nil {
		close(p.grown)
		p.grown = nil
	}
	return base, nil
}

// read finds the batches from an offset on: most bytes at the most, or the
// first batch. When there are none, wait is closed when there may be.
func (p *partition) read(offset int64, most int) (part piece, wait <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset >= p.next {
		if p.grown == nil {
			p.grown = make(chan struct{})
		}
		return piece{hw: p.next}, p.grown
	}
	i, j := 0, len(p.places) // the last batch that begins at offset or before
	for j-i > 1 {
		if m := (i + j) / 2; p.places[m].offset <= offset {
			i = m
		} else {
			j = m
		}
	}
	pos := p.places[i].pos
	first := p.size - pos
	if i+1 < len(p.places) {
		first = p.places[i+1].pos - pos
	}
	return piece{p.f, pos, int(min(p.size-pos, max(int64(most), first))), p.next}, nil
}

func (p *partition) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f != nil {
		_ = os.Remove(p.path)
		_ = p.f.Close()
	}
}

// metadata answers that every topic asked for exists and that this broker
// leads it.
func (b *broker) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	node := kmsg.NewMetadataResponseBroker()
	node.NodeID, node.Host, node.Port = 1, b.addr.IP.String(), int32(b.addr.Port)
	resp.Brokers = append(resp.Brokers, node)
	resp.ControllerID = 1
	resp.ClusterID = kmsg.StringPtr("skeleton")
	for _, t := range req.Topics {
		if t.Topic == nil {
			continue
		}
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic = t.Topic
		copy(rt.TopicID[:], *t.Topic)
		if len(*t.Topic) > len(rt.TopicID) || strings.TrimSpace(*t.Topic) == "" {
			rt.ErrorCode = int16(protocol.ErrInvalidTopicException)
		}
		for i := range b.o.partitions {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.Replicas, p.ISR = i, 1, []int32{1}, []int32{1}
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
