package group

import (
	"encoding/binary"
	"fmt"

	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// Versions of the keys of consumer groups' records, as Kafka 4.x numbers them.
const (
	epochKey       = 3
	partitionsKey  = 4 // written by Kafka 4.0 only; a hash in the epoch's record took its place
	memberKey      = 5
	targetEpochKey = 6
	targetKey      = 7
	currentKey     = 8
	regexKey       = 16
)

// consumerKey is the key of a record: of a group, or with a member or a regular
// expression of it.
type consumerKey struct {
	version int16
	group   string
	name    string // of the member or expression; "" where the kind has none
}

func (k consumerKey) named() bool {
	return k.version == memberKey || k.version == targetKey || k.version == currentKey || k.version == regexKey
}

func (k consumerKey) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(k.version))
	dst = appendText(dst, k.group)
	if k.named() {
		dst = appendText(dst, k.name)
	}
	return dst
}

func readConsumerKey(b []byte) (consumerKey, error) {
	r := reader{b: b}
	k := consumerKey{version: r.int16(), group: string(r.text(false))}
	if k.named() {
		k.name = string(r.text(false))
	}
	if r.bad {
		return k, fmt.Errorf("%w: key of version %d", errBroken, k.version)
	}
	return k, nil
}

// record makes the record of a value of version 0; without fields, a tombstone.
func (k consumerKey) record(fields []byte) coordinator.Record {
	key := k.append(make([]byte, 0, 6+len(k.group)+len(k.name)))
	if fields == nil {
		return coordinator.Record{Key: key}
	}
	return coordinator.Record{Key: key, Value: fields}
}

// v0 starts a value.
func v0() []byte { return []byte{0, 0} }

func epochRecord(group string, epoch int32, hash uint64) coordinator.Record {
	b := endWithLong(appendInt32(v0(), epoch), hash)
	return consumerKey{epochKey, group, ""}.record(b)
}

func readEpoch(r *reader) (epoch int32, hash uint64) {
	epoch = r.int32()
	r.tagged(func(tag int, f *reader) {
		if tag == 0 {
			hash = uint64(f.int64())
		}
	})
	return epoch, hash
}

func memberRecord(group string, m *consumer) coordinator.Record {
	b := v0()
	b = appendOptional(b, m.instance)
	b = appendOptional(b, m.rack)
	b = appendCompact(b, m.clientID)
	b = appendCompact(b, m.clientHost)
	b = appendTexts(b, m.topics)
	b = appendCompact(b, m.regex)
	b = appendInt32(b, m.rebalanceMs)
	b = appendOptional(b, m.assignor)
	if m.classic == nil {
		// Tagged field 0 of one byte, which says null. Where it is missing, Kafka sees
		// a member of the classic protocol.
		b = append(b, 1, 0, 1, 0)
		return consumerKey{memberKey, group, m.id}.record(b)
	}
	field := appendInt32([]byte{1}, m.classic.sessionMs) // 1: not null
	field = appendCompactLength(field, len(m.classic.protocols))
	for _, p := range m.classic.protocols {
		field = noTags(appendCompact(appendCompact(field, p.name), p.metadata))
	}
	field = noTags(field)
	b = binary.AppendUvarint(append(b, 1, 0), uint64(len(field)))
	return consumerKey{memberKey, group, m.id}.record(append(b, field...))
}

// readMember sets what the record says of a member.
func (m *consumer) readMember(r *reader) {
	m.instance, m.rack = r.optional(), r.optional()
	m.clientID, m.clientHost = string(r.text(true)), string(r.text(true))
	m.topics, m.regex = r.texts(), r.optional()
	m.rebalanceMs, m.assignor = r.int32(), r.optional()
	m.classic = nil
	r.tagged(func(tag int, f *reader) {
		if tag != 0 || f.int8() <= 0 {
			return
		}
		c := &classicMember{sessionMs: f.int32()}
		for n := f.count(3); n > 0 && !f.bad; n-- {
			p := proto{name: string(f.text(true))}
			p.metadata = append([]byte{}, f.bytes(true)...)
			f.tags(true)
			c.protocols = append(c.protocols, p)
		}
		f.tags(true)
		m.classic = c
	})
}

// targetEpochRecord has the time at which the target was made, in milliseconds,
// which Kafka since 4.3 looks at; 0 where nothing was worked out.
func targetEpochRecord(group string, epoch int32, at int64) coordinator.Record {
	b := endWithLong(appendInt32(v0(), epoch), uint64(at))
	return consumerKey{targetEpochKey, group, ""}.record(b)
}

func targetRecord(group, member string, set assign.Set) coordinator.Record {
	return consumerKey{targetKey, group, member}.record(noTags(appendSet(v0(), set)))
}

func currentRecord(group string, m *consumer) coordinator.Record {
	b := appendInt32(appendInt32(v0(), m.epoch), m.previous)
	b = append(b, byte(m.state))
	b = appendSetSince(appendSetSince(b, m.assigned, m.since), m.revoking, m.since)
	return consumerKey{currentKey, group, m.id}.record(noTags(b))
}

func (m *consumer) readCurrent(r *reader) {
	m.epoch, m.previous, m.state = r.int32(), r.int32(), memberState(r.int8())
	m.since = sinceEpochs{}
	m.assigned, m.revoking = r.setSince(m.since), r.setSince(m.since)
	r.tags(true)
	// Brokers before KIP-1251 have left the epochs out.
	m.since = m.stamped(max(m.epoch, 0))
}

func regexRecord(group, regex string, x *resolved) coordinator.Record {
	b := appendTexts(v0(), x.topics)
	b = binary.BigEndian.AppendUint64(b, uint64(x.version))
	b = binary.BigEndian.AppendUint64(b, uint64(x.at))
	return consumerKey{regexKey, group, regex}.record(noTags(b))
}

func readRegex(r *reader) *resolved {
	x := &resolved{topics: r.texts(), version: r.int64(), at: r.int64()}
	r.tags(true)
	return x
}
