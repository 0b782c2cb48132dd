package main

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// The kinds of anomaly that the checker knows.
const (
	lost      = "lost"      // acked, and in the log no more
	moved     = "moved"     // acked at one offset, found at another
	duplicate = "duplicate" // twice in the log
	disorder  = "disorder"  // behind a later record of its producer
	phantom   = "phantom"   // in the log, and never sent so
	hole      = "hole"      // an offset that no record has
	dirty     = "dirty"     // read by a consumer, and not in the log
	skipped   = "skipped"   // a consumer did not get offset after offset
	failed    = "failed"    // a producer was told that its record failed for good
	unequal   = "unequal"   // replicas differ below the high watermark
)

// anomaly is one thing that must not have happened.
type anomaly struct {
	kind      string
	partition int
	text      string
}

func (a anomaly) String() string {
	return fmt.Sprintf("%s, partition %d: %s", a.kind, a.partition, a.text)
}

// id names a record: the writer that sent it and its place in the writer's order
// for its partition. Writers have ids from 1 on.
type id struct{ writer, seq int32 }

func (x id) String() string { return fmt.Sprintf("record %d of writer %d", x.seq, x.writer) }

// value is what a record holds: its name, and padding that the checksum covers.
func value(x id, partition, size int) string {
	text := fmt.Sprintf("%d/%d/%d/", x.writer, partition, x.seq)
	if pad := size - len(text) - 9; pad > 0 {
		text += strings.Repeat(string(rune('a'+x.seq%26)), pad)
	}
	return fmt.Sprintf("%s/%08x", text, crc32.ChecksumIEEE([]byte(text)))
}

// parse is value backwards; ok is false when it is not what a writer sends.
func parse(v string) (x id, partition int, ok bool) {
	at := strings.LastIndexByte(v, '/')
	if at < 0 {
		return x, 0, false
	}
	sum, err := strconv.ParseUint(v[at+1:], 16, 32)
	if err != nil || uint32(sum) != crc32.ChecksumIEEE([]byte(v[:at])) {
		return x, 0, false
	}
	n, err := fmt.Sscanf(v, "%d/%d/%d/", &x.writer, &partition, &x.seq)
	return x, partition, n == 3 && err == nil
}

// What is known of a record that was sent, where it has no offset.
const (
	pending  int64 = -1
	refused  int64 = -2
	unplaced int64 = -3 // acked, and where was not said
)

// sent is what one writer did in one partition: by sequence number the offset at
// which it was acked, or one of the above.
type sent struct {
	writer int32
	acks   []int64
}

// got is one record as somebody read it; a value that no writer sends has writer 0.
type got struct {
	offset int64
	id     id
}

func gotOf(offset int64, partition int, v string) got {
	x, p, ok := parse(v)
	if !ok || p != partition {
		x = id{}
	}
	return got{offset, x}
}

// evidence is all that is known of one partition.
type evidence struct {
	partition int
	sent      []sent
	read      map[string][]got // by consumer, in the order in which it got them
	log       []got            // what a new consumer reads from the beginning to the end
	known     map[int32]int    // by writer, how many records it had sent after the log was read
}

// most bounds how many anomalies of one kind are told of one partition.
const most = 5

type findings struct {
	partition int
	count     map[string]int
	list      []anomaly
}

func (f *findings) add(kind, format string, args ...any) {
	f.count[kind]++
	if f.count[kind] <= most {
		f.list = append(f.list, anomaly{kind, f.partition, fmt.Sprintf(format, args...)})
	}
}

// check judges one partition. The evidence of writers and consumers must have
// been taken before the log was read: then all of it must be in the log.
func check(e evidence) []anomaly {
	f := &findings{partition: e.partition, count: map[string]int{}}
	at := f.checkLog(e)
	f.checkAcks(e, at)
	for name, read := range e.read {
		f.checkReader(e, name, read)
	}
	for kind, n := range f.count {
		if n > most {
			f.list = append(f.list, anomaly{kind, e.partition, fmt.Sprintf("and %d more", n-most)})
		}
	}
	return f.list
}

// checkLog looks at the log alone and returns where each record stands.
func (f *findings) checkLog(e evidence) map[id]int64 {
	at, last := map[id]int64{}, map[int32]int32{}
	due := int64(0)
	for _, g := range e.log {
		if g.offset != due {
			f.add(hole, "offset %d follows %d", g.offset, due-1)
		}
		due = g.offset + 1
		if g.id.writer == 0 {
			f.add(phantom, "offset %d holds what no writer sends", g.offset)
			continue
		}
		if before, ok := at[g.id]; ok {
			f.add(duplicate, "%s stands at %d and at %d", g.id, before, g.offset)
			continue
		}
		at[g.id] = g.offset
		if before, ok := last[g.id.writer]; ok && g.id.seq < before {
			f.add(disorder, "%s stands at %d, behind record %d", g.id, g.offset, before)
			continue
		}
		last[g.id.writer] = g.id.seq
	}
	return at
}

func (f *findings) checkAcks(e evidence, at map[id]int64) {
	for _, s := range e.sent {
		for seq, offset := range s.acks {
			x := id{s.writer, int32(seq)}
			stands, there := at[x]
			switch {
			case offset == pending:
			case offset == refused:
				f.add(failed, "%s", x)
			case !there:
				f.add(lost, "%s was acked at %d; the log ends at %d", x, offset, len(e.log))
			case offset == unplaced:
			case stands != offset:
				f.add(moved, "%s was acked at %d and stands at %d", x, offset, stands)
			}
		}
	}
	for x, offset := range at {
		if n, ok := e.known[x.writer]; !ok {
			f.add(phantom, "offset %d holds %s, who is not known", offset, x)
		} else if int(x.seq) >= n {
			f.add(phantom, "offset %d holds %s, who sent %d", offset, x, n)
		}
	}
}

func (f *findings) checkReader(e evidence, name string, read []got) {
	for i, g := range read {
		if i > 0 && g.offset != read[i-1].offset+1 {
			f.add(skipped, "%s got offset %d after %d", name, g.offset, read[i-1].offset)
		}
		if i == 0 && g.offset != 0 {
			f.add(skipped, "%s began at offset %d", name, g.offset)
		}
		switch {
		case g.offset < 0 || g.offset >= int64(len(e.log)):
			f.add(dirty, "%s got %s at %d; the log ends at %d", name, g.id, g.offset, len(e.log))
		case e.log[g.offset].id != g.id:
			f.add(dirty, "%s got %s at %d, where %s stands", name, g.id, g.offset, e.log[g.offset].id)
		}
	}
}
