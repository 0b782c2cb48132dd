package group

import (
	"encoding/binary"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
)

// What flexible versions are made of, beside reader's.

func appendCompactLength(dst []byte, n int) []byte {
	return binary.AppendUvarint(dst, uint64(n)+1)
}

func appendCompact[T string | []byte](dst []byte, s T) []byte {
	return append(appendCompactLength(dst, len(s)), s...)
}

// appendOptional writes a nullable string; "" stands for null.
func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, 0)
	}
	return appendCompact(dst, s)
}

func appendTexts(dst []byte, list []string) []byte {
	dst = appendCompactLength(dst, len(list))
	for _, s := range list {
		dst = appendCompact(dst, s)
	}
	return dst
}

func appendInt32(dst []byte, n int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(n)) }

// noTags ends a structure without tagged fields.
func noTags(dst []byte) []byte { return append(dst, 0) }

// endWithLong ends a structure with tagged field 0 of 8 bytes, which is left out
// for 0.
func endWithLong(dst []byte, n uint64) []byte {
	if n == 0 {
		return noTags(dst)
	}
	return binary.BigEndian.AppendUint64(append(dst, 1, 0, 8), n)
}

func appendSet(dst []byte, set assign.Set) []byte { return appendSetSince(dst, set, nil) }

func appendSetSince(dst []byte, set assign.Set, since sinceEpochs) []byte {
	dst = appendCompactLength(dst, len(set))
	for _, tp := range set {
		dst = append(dst, tp.Topic[:]...)
		dst = appendCompactLength(dst, len(tp.Partitions))
		for _, p := range tp.Partitions {
			dst = appendInt32(dst, p)
		}
		dst = since.appendTo(dst, tp)
	}
	return dst
}

// count is an array's length; each element takes size bytes at least, so that
// what follows is bounded by the record.
func (r *reader) count(size int) int {
	n := r.length(true, true)
	if n < 0 || n > len(r.b)/size {
		r.bad, r.b = true, nil
		return 0
	}
	return n
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

// optional is a nullable string; "" stands for null.
func (r *reader) optional() string {
	text, _ := r.nullable(true)
	return string(text)
}

func (r *reader) texts() []string {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	out := make([]string, 0, n)
	for ; n > 0 && !r.bad; n-- {
		out = append(out, string(r.text(true)))
	}
	return out
}

func (r *reader) set() assign.Set { return r.setSince(sinceEpochs{}) }

// setSince is set with the epochs that the record has of it.
func (r *reader) setSince(since sinceEpochs) assign.Set {
	var parts []assign.TopicPartitions
	for n := r.count(18); n > 0 && !r.bad; n-- {
		var tp assign.TopicPartitions
		tp.Topic = cluster.TopicID(r.id())
		for m := r.count(4); m > 0; m-- {
			tp.Partitions = append(tp.Partitions, r.int32())
		}
		r.tagged(func(tag int, f *reader) {
			if tag == 0 {
				since.read(f, tp)
			}
		})
		parts = append(parts, tp)
	}
	if r.bad {
		return nil
	}
	return assign.Of(parts)
}

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

// tagged calls one for each tagged field with what it holds.
func (r *reader) tagged(one func(tag int, r *reader)) {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		tag := r.uvarint()
		field := reader{b: r.take(r.uvarint())}
		if r.bad {
			return
		}
		if one(tag, &field); field.bad {
			r.bad = true
		}
	}
}
