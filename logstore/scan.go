package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// errTail marks the place where a log's valid batches end: what follows is cut
// off, or is not a batch.
var errTail = errors.New("no valid batch")

const (
	// A lookup reads two index intervals at once; a recovery as much as keeps
	// the disk busy.
	lookupWindow  = 8 << 10
	recoverWindow = 2 << 20
	// maxControlBatch bounds what is read into memory to learn what a control
	// batch says.
	maxControlBatch = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry describes one batch in a segment file, of any format.
type entry struct {
	pos  int64
	size int64 // with its 12 bytes of overhead
	// base and last are its offsets. Formats 0 and 1 tell only the last one;
	// base is the same then.
	base, last int64
	// headTs is what its header says is the largest timestamp, maxTs that of its
	// records. A batch that compaction has emptied keeps the time for its
	// producer's sake and has no record of it. headTs >= maxTs.
	maxTs, headTs int64
	epoch         cluster.LeaderEpoch // NoLeaderEpoch in formats 0 and 1
	magic         int8
	header        record.Batch // of format 2: the first 61 bytes, valid until the next call
}

// scanner walks the batches of a segment file between two positions.
type scanner struct {
	f        io.ReaderAt
	pos, end int64
	checkCRC bool

	buf []byte // window over [off, off+n)
	off int64
	n   int
	e   entry
}

var (
	lookupScanners  = sync.Pool{New: func() any { return &scanner{buf: make([]byte, lookupWindow)} }}
	recoverScanners = sync.Pool{New: func() any { return &scanner{buf: make([]byte, recoverWindow)} }}
)

// newScanner looks at headers only. It must be given back with done.
func newScanner(f io.ReaderAt, from, end int64) *scanner {
	s := lookupScanners.Get().(*scanner)
	s.f, s.pos, s.end, s.checkCRC, s.n = f, from, end, false, 0
	return s
}

// newRecovery reads everything and verifies checksums.
func newRecovery(f io.ReaderAt, from, end int64) *scanner {
	s := recoverScanners.Get().(*scanner)
	s.f, s.pos, s.end, s.checkCRC, s.n = f, from, end, true, 0
	return s
}

func (s *scanner) done() {
	s.f = nil
	if len(s.buf) == lookupWindow {
		lookupScanners.Put(s)
	} else {
		recoverScanners.Put(s)
	}
}

// window returns n bytes of the file at pos, which lie before end. n is at most
// the window's size.
func (s *scanner) window(pos int64, n int) ([]byte, error) {
	if pos < s.off || pos+int64(n) > s.off+int64(s.n) {
		want := int(min(int64(len(s.buf)), s.end-pos))
		s.off, s.n = pos, 0
		got, err := s.f.ReadAt(s.buf[:want], pos)
		if got < n {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return nil, shortRead(err)
		}
		s.n = got
	}
	at := int(pos - s.off)
	return s.buf[at : at+n], nil
}

// next moves to the next batch. It returns io.EOF at end, an error that wraps
// errTail where the bytes are no whole batch, and read errors as they are.
func (s *scanner) next() (*entry, error) {
	left := s.end - s.pos
	if left <= 0 {
		return nil, io.EOF
	}
	if left < record.LogOverhead+5 {
		return nil, fmt.Errorf("%w: %d bytes at the end", errTail, left)
	}
	h, err := s.window(s.pos, int(min(left, record.HeaderLen)))
	if err != nil {
		return nil, err
	}
	if err := s.e.parse(h, s.pos, left); err != nil {
		return nil, err
	}
	if s.checkCRC {
		if err := s.verify(); err != nil {
			return nil, err
		}
	}
	s.pos += s.e.size
	return &s.e, nil
}

// nextTolerant is next for scans that learn what they can: damaged bytes in a
// segment that nobody has to verify now end the scan as its end would. Whoever
// reads there is told.
func (s *scanner) nextTolerant(in *segment) (*entry, error) {
	e, err := s.next()
	if errors.Is(err, errTail) {
		in.log.store.log.Error().Err(err).Str("segment", in.path(extLog)).Msg("stored batches are corrupt")
		return nil, io.EOF
	}
	return e, err
}

// parse reads a header of which h is all that there is, up to 61 bytes.
func (e *entry) parse(h []byte, pos, left int64) error {
	be := binary.BigEndian
	length := int64(int32(be.Uint32(h[8:])))
	magic := int8(h[16])
	*e = entry{pos: pos, size: length + record.LogOverhead, magic: magic, epoch: cluster.NoLeaderEpoch, maxTs: record.NoTimestamp, headTs: record.NoTimestamp}
	switch {
	case length < 14:
		return fmt.Errorf("%w: length %d at position %d", errTail, length, pos)
	case magic < record.MagicV0 || magic > record.MagicV2:
		return fmt.Errorf("%w: magic %d at position %d", errTail, magic, pos)
	case e.size > left:
		return fmt.Errorf("%w: %d of %d bytes at position %d", errTail, left, e.size, pos)
	}
	e.base = int64(be.Uint64(h))
	e.last = e.base
	if magic < record.MagicV2 {
		if magic == record.MagicV1 && len(h) >= 26 {
			e.maxTs = int64(be.Uint64(h[18:]))
			e.headTs = e.maxTs
		}
		return nil
	}
	if e.size < record.HeaderLen {
		return fmt.Errorf("%w: batch of %d bytes at position %d", errTail, e.size, pos)
	}
	b := record.Batch(h)
	if b.LastOffsetDelta() < 0 || b.Count() < 0 || e.base < 0 {
		return fmt.Errorf("%w: base offset %d, last offset delta %d, count %d at position %d", errTail, e.base, b.LastOffsetDelta(), b.Count(), pos)
	}
	e.last += int64(b.LastOffsetDelta())
	e.headTs, e.epoch, e.header = b.MaxTimestamp(), b.LeaderEpoch(), b
	if b.Count() > 0 {
		e.maxTs = e.headTs
	}
	return nil
}

// verify checks the checksum, in pieces when the batch is larger than the
// window: nothing is allocated by what a length field says.
func (s *scanner) verify() error {
	e := &s.e
	storedAt, from, table := int64(17), int64(21), castagnoli
	if e.magic < record.MagicV2 {
		storedAt, from, table = 12, 16, crc32.IEEETable
	}
	whole := e.size <= int64(len(s.buf)) // then it stays in the window, for whoever looks at it next
	var want, sum uint32
	for p := storedAt; p < e.size; {
		at, n := e.pos+p, min(e.size-p, int64(len(s.buf)))
		if whole {
			at, n = e.pos, e.size
		}
		b, err := s.window(at, int(n))
		if err != nil {
			return err
		}
		if whole {
			b, n = b[p:], n-p
		}
		if p == storedAt {
			want, b = binary.BigEndian.Uint32(b), b[from-storedAt:]
		}
		sum = crc32.Update(sum, table, b)
		p += n
	}
	if sum != want {
		return fmt.Errorf("%w: stored crc %d, computed %d at position %d", errTail, want, sum, e.pos)
	}
	if e.magic == record.MagicV2 {
		h, err := s.window(e.pos, record.HeaderLen)
		if err != nil {
			return err
		}
		e.header = record.Batch(h)
	}
	return nil
}

// producerBatch is what producer state is told of the current entry; false for
// one without a producer id.
func (s *scanner) producerBatch() (producers.Batch, bool, error) {
	e := &s.e
	if e.magic < record.MagicV2 || !e.header.HasProducerID() {
		return producers.Batch{}, false, nil
	}
	if !e.header.Control() {
		return dataBatch(e.header), true, nil
	}
	if e.size > maxControlBatch {
		return producers.Batch{}, false, fmt.Errorf("%w: control batch of %d bytes", ErrCorruptLog, e.size)
	}
	whole, err := s.whole()
	if err != nil {
		return producers.Batch{}, false, err
	}
	b, err := controlBatch(record.Batch(whole))
	return b, err == nil, err
}

func dataBatch(h record.Batch) producers.Batch {
	return producers.Batch{
		ProducerID: h.ProducerID(), Epoch: h.ProducerEpoch(), BaseSequence: h.BaseSequence(), LastSequence: h.LastSequence(),
		First: h.BaseOffset(), Last: h.LastOffset(), MaxTimestamp: h.MaxTimestamp(), Transactional: h.Transactional(), Control: h.Control(),
	}
}

// controlBatch reads the marker in a whole control batch. Control records of
// other kinds, and a batch that compaction emptied, leave producers as they are.
func controlBatch(b record.Batch) (producers.Batch, error) {
	p := dataBatch(b)
	it := b.Iter(nil)
	defer it.Close()
	if !it.Next() {
		return p, it.Err()
	}
	t, epoch, err := record.ParseControl(it.Record())
	if err != nil {
		return p, err
	}
	p.MaxTimestamp = it.Timestamp()
	p.CoordinatorEpoch = epoch
	switch t {
	case record.ControlCommit:
		p.Marker = producers.Commit
	case record.ControlAbort:
		p.Marker = producers.Abort
	}
	return p, nil
}

// whole reads the current batch into memory. Its size is bounded by the
// segment's.
func (s *scanner) whole() ([]byte, error) {
	b := make([]byte, s.e.size)
	if n, err := s.f.ReadAt(b, s.e.pos); n < len(b) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, shortRead(err)
	}
	return b, nil
}
