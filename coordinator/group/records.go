package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/coordinator"
)

// Versions of the records' keys: they tell the kinds apart. Those of the
// consumer protocol follow.
const (
	offsetKey0 = 0
	offsetKey  = 1 // of the same content as 0
	metaKey    = 2
)

// The highest versions of the values that are read. What is written are the
// highest without tagged fields, as 3.9 does.
const (
	maxOffsetValue = 4
	maxMetaValue   = 4
)

var (
	errBroken  = errors.New("broken record of a group")
	errUnknown = errors.New("unknown record of a group")
)

func appendOffsetKey(dst []byte, group, topic string, partition int32) []byte {
	dst = binary.BigEndian.AppendUint16(dst, offsetKey)
	dst = appendText(dst, group)
	dst = appendText(dst, topic)
	return binary.BigEndian.AppendUint32(dst, uint32(partition))
}

// offsetRecord is a committed offset. One with an expiry of its own is written
// as version 1, which is the only one to have that and has no leader epoch.
func offsetRecord(group, topic string, partition int32, c commit) coordinator.Record {
	key := 2 + 2 + len(group) + 2 + len(topic) + 4
	b := make([]byte, 0, key+2+8+4+2+len(c.metadata)+8+8)
	b = appendOffsetKey(b, group, topic, partition)
	version := uint16(3)
	if c.expires != never {
		version = 1
	}
	b = binary.BigEndian.AppendUint16(b, version)
	b = binary.BigEndian.AppendUint64(b, uint64(c.offset))
	if version == 3 {
		b = binary.BigEndian.AppendUint32(b, uint32(c.epoch))
	}
	b = appendText(b, c.metadata)
	b = binary.BigEndian.AppendUint64(b, uint64(c.committed))
	if version == 1 {
		b = binary.BigEndian.AppendUint64(b, uint64(c.expires))
	}
	return coordinator.Record{Key: b[:key:key], Value: b[key:]}
}

// readOffsetKey reads what follows the version of an offset's key.
func readOffsetKey(b []byte) (group, topic []byte, partition int32, err error) {
	r := reader{b: b}
	group, topic, partition = r.text(false), r.text(false), r.int32()
	if r.bad || partition < 0 {
		return nil, nil, 0, fmt.Errorf("%w: offset key", errBroken)
	}
	return group, topic, partition, nil
}

// readCommit reads an offset's value; metadata aliases it.
func readCommit(b []byte) (c commit, metadata []byte, err error) {
	r := reader{b: b}
	version := r.int16()
	if version < 0 || version > maxOffsetValue {
		return c, nil, fmt.Errorf("%w: offset value of version %d", errUnknown, version)
	}
	flexible := version >= 4
	c = commit{offset: r.int64(), epoch: -1, expires: never}
	if version >= 3 {
		c.epoch = r.int32()
	}
	metadata = r.text(flexible)
	c.committed = r.int64()
	if version == 1 {
		c.expires = r.int64()
	}
	r.tags(flexible)
	if r.bad {
		return c, nil, fmt.Errorf("%w: offset value", errBroken)
	}
	return c, metadata, nil
}

func appendMetaKey(dst []byte, group string) []byte {
	return appendText(binary.BigEndian.AppendUint16(dst, metaKey), group)
}

// meta is a classic group's metadata record. Bytes alias it.
type meta struct {
	protocolType string
	generation   int32
	protocol     *string
	leader       *string
	since        int64 // -1 in old versions
	members      []metaMember
}

type metaMember struct {
	id, clientID, clientHost string
	instance                 *string
	rebalanceMs, sessionMs   int32
	subscription, assignment []byte
}

// append writes the value in version 3.
func (m *meta) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, 3)
	dst = appendText(dst, m.protocolType)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.generation))
	dst = appendNullable(dst, m.protocol)
	dst = appendNullable(dst, m.leader)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.since))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.members)))
	for i := range m.members {
		w := &m.members[i]
		dst = appendText(dst, w.id)
		dst = appendNullable(dst, w.instance)
		dst = appendText(dst, w.clientID)
		dst = appendText(dst, w.clientHost)
		dst = binary.BigEndian.AppendUint32(dst, uint32(w.rebalanceMs))
		dst = binary.BigEndian.AppendUint32(dst, uint32(w.sessionMs))
		dst = appendBytes(dst, w.subscription)
		dst = appendBytes(dst, w.assignment)
	}
	return dst
}

// readMeta reads a value of any version.
func readMeta(b []byte) (*meta, error) {
	r := reader{b: b}
	version := r.int16()
	if version < 0 || version > maxMetaValue {
		return nil, fmt.Errorf("%w: group metadata of version %d", errUnknown, version)
	}
	flexible := version >= 4
	m := &meta{protocolType: string(r.text(flexible)), generation: r.int32(), since: -1}
	m.protocol = optional(r.nullable(flexible))
	m.leader = optional(r.nullable(flexible))
	if version >= 2 {
		m.since = r.int64()
	}
	for n := r.length(flexible, true); n > 0 && !r.bad; n-- {
		m.members = append(m.members, readMember(&r, version))
	}
	r.tags(flexible)
	if r.bad {
		return nil, fmt.Errorf("%w: group metadata", errBroken)
	}
	return m, nil
}

func readMember(r *reader, version int16) metaMember {
	flexible := version >= 4
	w := metaMember{id: string(r.text(flexible))}
	if version >= 3 {
		w.instance = optional(r.nullable(flexible))
	}
	w.clientID, w.clientHost = string(r.text(flexible)), string(r.text(flexible))
	if version >= 1 {
		w.rebalanceMs = r.int32()
	}
	w.sessionMs = r.int32()
	if version == 0 {
		w.rebalanceMs = w.sessionMs
	}
	w.subscription, w.assignment = r.bytes(flexible), r.bytes(flexible)
	r.tags(flexible)
	return w
}

func optional(b []byte, ok bool) *string {
	if !ok {
		return nil
	}
	s := string(b)
	return &s
}

// subscription lists the topics of a consumer's subscription. Only the prefix
// that all versions share is read; ok is false for what is none.
func subscription(metadata []byte) (topics []string, ok bool) {
	r := reader{b: metadata}
	r.int16()
	n := r.int32()
	if n < 0 {
		return nil, false
	}
	for ; n > 0 && !r.bad; n-- {
		topics = append(topics, string(r.text(false)))
	}
	return topics, !r.bad
}

// applyMeta replays a classic group's metadata. Its members come to life in
// wake; while the shard serves, they are those who caused the record.
func (s *Shard) applyMeta(e coordinator.Entry) error {
	r := reader{b: e.Key[2:]}
	id := r.text(false)
	if r.bad {
		return fmt.Errorf("%w: group metadata key", errBroken)
	}
	if e.Value == nil {
		if g := s.groups[string(id)]; g != nil {
			g.meta = nil
			s.reap(g)
		}
		return nil
	}
	if _, err := readMeta(e.Value); err != nil {
		return err
	}
	g := s.entry(id)
	g.meta = bytes.Clone(e.Value)
	// A coordinator that does not know consumer groups writes no tombstones of
	// one: the younger record tells what the group is.
	g.consumers = nil
	return nil
}
