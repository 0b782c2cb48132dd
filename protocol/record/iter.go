package record

import (
	"io"

	"github.com/kbroker/kbroker/cluster"
)

// Iter walks the records of a batch, decompressing as it goes. It holds one
// chunk and one record in memory. It does not look at the CRC.
type Iter struct {
	rec Rec
	b   Batch
	err error

	done   bool
	left   int32 // records still declared
	plain  []byte
	pos    int
	cur    cursor // compressed
	packed bool
	pooled bool
	maxRec int // longest record accepted; 0: no bound but the decompressor's
}

// Iter starts a walk over the records that b declares. d may be nil: pooled
// state is used then, and Close gives it back. b must have passed CheckHeader.
func (b Batch) Iter(d *Decompressor) Iter {
	it := Iter{b: b, left: b.Count(), plain: b[HeaderLen:]}
	if it.left < 0 {
		it.err = rejectf(ErrInvalidRecord, FaultOffsetOrSequence, "record count %d", it.left)
	}
	if it.left <= 0 { // as in Kafka, what follows the header of an empty batch does not matter
		it.done = true
		return it
	}
	if codec := b.Codec(); codec != CodecNone {
		it.packed = true
		if d == nil {
			d, it.pooled = pooledDecompressor(0), true
		}
		it.cur.d = d
		it.err = d.start(codec, MagicV2, it.plain)
		it.done = it.err != nil
	}
	return it
}

// Next moves to the next record. It returns false at the end and when the
// records are broken: Err tells which. Bytes left after the last record show
// only then.
func (it *Iter) Next() bool {
	if it.done {
		return false
	}
	if it.left == 0 {
		it.done = true
		it.err = it.checkEnd()
		return false
	}
	it.left--
	if it.packed {
		it.err = it.nextPacked()
	} else {
		it.err = it.nextPlain()
	}
	it.done = it.err != nil
	return !it.done
}

func (it *Iter) checkEnd() error {
	if !it.packed {
		if it.pos != len(it.plain) {
			return invalidRecord(badTrailing)
		}
		return nil
	}
	if !it.cur.atEnd() {
		return invalidRecord(badTrailing)
	}
	if it.cur.err != io.EOF {
		return it.cur.err
	}
	return nil
}

func (it *Iter) nextPlain() error {
	end, problem := it.rec.one(it.plain, it.pos)
	switch problem {
	case "":
		it.pos = end
		return nil
	case short:
		return invalidRecord(badLength)
	case badVarint:
		return rejectf(ErrUnprocessable, FaultNone, badVarint)
	}
	return invalidRecord(problem)
}

func (it *Iter) nextPacked() error {
	c := &it.cur
	if !c.fill() {
		return c.failure()
	}
	end, problem := it.rec.one(c.p, 0)
	switch problem {
	case "":
		c.p = c.p[end:]
		c.used += int64(end)
		return nil
	case short:
		return it.gather()
	}
	return invalidRecord(problem)
}

// gather reads a record that spans chunks into d.rec.
func (it *Iter) gather() error {
	c := &it.cur
	n, ok := c.varint()
	if !ok {
		return invalidRecord(badVarint)
	}
	if c.err != nil {
		return c.failure()
	}
	if n < 0 {
		return invalidRecord(badBody)
	}
	// What counts is what is there, not what is claimed.
	want := int(n)
	if it.maxRec > 0 {
		want = min(want, it.maxRec+1)
	}
	c.d.rec = c.take(c.d.rec[:0], want)
	if len(c.d.rec) < want {
		return c.failure()
	}
	if want < int(n) {
		return rejectf(ErrTooLarge, FaultNone, "a record of %d bytes", n)
	}
	if problem := it.rec.parseBody(c.d.rec); problem != "" {
		return invalidRecord(problem)
	}
	return nil
}

// Record is the current record; valid until the next call of Next or Close.
func (it *Iter) Record() *Rec { return &it.rec }

// Offset is the absolute offset of the current record.
func (it *Iter) Offset() cluster.Offset {
	return it.b.BaseOffset() + cluster.Offset(it.rec.OffsetDelta)
}

// Timestamp is the absolute timestamp of the current record.
func (it *Iter) Timestamp() int64 {
	if it.b.LogAppendTime() {
		return it.b.MaxTimestamp()
	}
	return it.b.BaseTimestamp() + it.rec.TimestampDelta
}

// Err tells why Next returned false; nil at the regular end.
func (it *Iter) Err() error { return it.err }

// Close ends the walk and gives pooled state back. It may be called at any
// time, more than once.
func (it *Iter) Close() {
	if d := it.cur.d; d != nil {
		if it.pooled {
			d.release()
		} else {
			d.end()
		}
		it.cur.d = nil
	}
	it.done, it.rec = true, Rec{}
}
