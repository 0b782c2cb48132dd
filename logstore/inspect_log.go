package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/protocol/record"
)

// inspector reads a log file entry by entry, whole and checked, for the tools
// that look at a data directory from outside. It shares nothing with the code
// that serves and recovers logs, so that it can contradict it.
type inspector struct {
	f    io.ReaderAt
	size int64
	pos  int64 // of the next entry
	buf  []byte
}

// inspected is one entry. Of formats 0 and 1, First is Last, and it has neither
// producer nor leader epoch.
type inspected struct {
	Pos         int64
	Data        []byte // valid until the next entry is read
	Magic       int8
	First, Last cluster.Offset
	MaxTs       int64
}

func newInspector(f vfs.File) (*inspector, error) {
	size, err := f.Size()
	return &inspector{f: f, size: size}, err
}

// next reads the entry at pos. The error is io.EOF at the end of the file; where
// no entry can be it wraps record.ErrCorrupt or is record.ErrShort; everything
// else is the disk's.
func (r *inspector) next() (inspected, error) {
	if r.pos >= r.size {
		return inspected{}, io.EOF
	}
	var head [17]byte
	n := min(int64(len(head)), r.size-r.pos)
	if _, err := r.f.ReadAt(head[:n], r.pos); err != nil {
		return inspected{}, err
	}
	if _, _, err := record.Next(head[:n]); !errors.Is(err, record.ErrShort) {
		return inspected{}, err // an entry is longer than its head
	}
	length := int64(int32(binary.BigEndian.Uint32(head[8:]))) + record.LogOverhead
	if n < int64(len(head)) || length > r.size-r.pos {
		return inspected{}, record.ErrShort
	}
	if int64(cap(r.buf)) < length {
		r.buf = make([]byte, length)
	}
	e := inspected{Pos: r.pos, Data: r.buf[:length]}
	if _, err := r.f.ReadAt(e.Data, r.pos); err != nil {
		return inspected{}, err
	}
	if err := e.parse(); err != nil {
		return inspected{}, err
	}
	r.pos += length
	return e, nil
}

// parse takes the entry's own word for its offsets; a format 2 entry that is too
// short for its header is no entry.
func (e *inspected) parse() error {
	e.Magic, _ = record.PeekMagic(e.Data)
	if e.Magic < record.MagicV2 {
		m := record.Legacy(e.Data)
		e.First, e.Last, e.MaxTs = m.Offset(), m.Offset(), m.Timestamp()
		return nil
	}
	b := record.Batch(e.Data)
	if err := b.CheckHeader(); err != nil {
		return fmt.Errorf("%w: %v", record.ErrCorrupt, err)
	}
	e.First, e.Last, e.MaxTs = b.BaseOffset(), b.LastOffset(), b.MaxTimestamp()
	return nil
}

// empty tells of a batch that only says what its producer did: compaction took
// its records.
func (e *inspected) empty() bool {
	return e.Magic >= record.MagicV2 && record.Batch(e.Data).Count() == 0
}

// check verifies the checksum.
func (e *inspected) check() error {
	if e.Magic < record.MagicV2 {
		return record.Legacy(e.Data).CheckCRC()
	}
	return record.Batch(e.Data).CheckCRC()
}

// isLogEnd reports whether err tells where valid entries end rather than that
// the disk failed.
func isLogEnd(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort)
}

func (d *dumper) log(base int64) error {
	f, err := d.fs.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := newInspector(f)
	if err != nil {
		return err
	}
	d.printf("Log starting offset: %d\n", base)
	last := cluster.NoOffset
	for {
		e, err := r.next()
		if err == io.EOF {
			return nil
		}
		if isLogEnd(err) {
			d.printf("Found %d invalid bytes at the end of %s\n", r.size-r.pos, fileName(base, extLog))
			d.problem("position %d: %v", r.pos, err)
			return nil
		}
		if err != nil {
			return err
		}
		crcErr := e.check()
		d.entry(e, crcErr == nil)
		if crcErr != nil {
			d.problem("position %d: %v", e.Pos, crcErr)
		}
		if e.First <= last {
			d.problem("position %d: offset %d after %d", e.Pos, e.First, last)
		}
		last = max(last, e.Last)
		if d.deep && crcErr == nil {
			d.records(e)
		}
	}
}

func (d *dumper) entry(e inspected, valid bool) {
	if e.Magic < record.MagicV2 {
		m := record.Legacy(e.Data)
		d.printf("offset: %d position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n",
			m.Offset(), e.Pos, timestampType(m.Magic(), m.LogAppendTime()), m.Timestamp(), len(e.Data), m.Magic(), m.Codec(), m.CRC(), valid)
		return
	}
	b := record.Batch(e.Data)
	horizon := "none"
	if b.HasDeleteHorizon() {
		horizon = strconv.FormatInt(b.BaseTimestamp(), 10)
	}
	d.printf("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d"+
		" partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
		b.BaseOffset(), b.LastOffset(), b.Count(), b.BaseSequence(), b.LastSequence(), b.ProducerID(), b.ProducerEpoch(),
		b.LeaderEpoch(), b.Transactional(), b.Control(), horizon)
	d.printf(" position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n",
		e.Pos, timestampType(b.Magic(), b.LogAppendTime()), b.MaxTimestamp(), len(e.Data), b.Magic(), b.Codec(), b.CRC(), valid)
}

func timestampType(magic int8, logAppendTime bool) string {
	switch {
	case magic == record.MagicV0:
		return "NoTimestampType"
	case logAppendTime:
		return "LogAppendTime"
	}
	return "CreateTime"
}

func (d *dumper) records(e inspected) {
	if e.Magic < record.MagicV2 {
		d.legacyRecords(record.Legacy(e.Data))
		return
	}
	b := record.Batch(e.Data)
	it := b.Iter(nil)
	defer it.Close()
	kind := timestampType(b.Magic(), b.LogAppendTime())
	for it.Next() {
		r := it.Record()
		seq := b.BaseSequence()
		if seq >= 0 {
			seq = record.IncrementSequence(seq, r.OffsetDelta)
		}
		d.recordHead(it.Offset(), kind, it.Timestamp(), r)
		d.printf(" sequence: %d headerKeys: [%s]", seq, headerKeys(r))
		if b.Control() {
			d.marker(r)
		} else {
			d.data(r)
		}
		d.printf("\n")
	}
	if err := it.Err(); err != nil {
		d.problem("position %d: %v", e.Pos, err)
	}
}

func (d *dumper) legacyRecords(m record.Legacy) {
	it := m.Iter(nil)
	defer it.Close()
	for it.Next() {
		d.recordHead(it.Offset(), timestampType(m.Magic(), m.LogAppendTime()), it.Timestamp(), it.Record())
		inner := it.Message()
		crcErr := inner.CheckCRC()
		d.printf(" isValid: %t crc: %d", crcErr == nil, inner.CRC())
		d.data(it.Record())
		d.printf("\n")
		if crcErr != nil {
			d.problem("offset %d: %v", it.Offset(), crcErr)
		}
	}
	if err := it.Err(); err != nil {
		d.problem("offset %d: %v", m.Offset(), err)
	}
}

func (d *dumper) recordHead(off cluster.Offset, kind string, ts int64, r *record.Rec) {
	d.printf("| offset: %d %s: %d keySize: %d valueSize: %d", off, kind, ts, sizeOf(r.Key, r.KeyNull), sizeOf(r.Value, r.ValueNull))
}

func sizeOf(b []byte, null bool) int {
	if null {
		return -1
	}
	return len(b)
}

func headerKeys(r *record.Rec) string {
	var keys []string
	r.EachHeader(func(key, _ []byte) bool {
		keys = append(keys, printable(key))
		return true
	})
	return strings.Join(keys, ",")
}

func (d *dumper) marker(r *record.Rec) {
	kind, epoch, err := record.ParseControl(r)
	if err != nil {
		d.printf(" controlType: UNKNOWN (%v)", err)
		return
	}
	d.printf(" endTxnMarker: %s coordinatorEpoch: %d", kind, epoch)
}

func (d *dumper) data(r *record.Rec) {
	if !r.KeyNull {
		d.printf(" key: %s", printable(r.Key))
	}
	if !r.ValueNull {
		d.printf(" payload: %s", printable(r.Value))
	}
}

// printable is text as it is, and everything that could confuse a terminal or
// the line as a Go string literal.
func printable(b []byte) string {
	s := string(b)
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// offsetIndex prints the entries and looks each up in the log.
func (d *dumper) offsetIndex(base int64) error {
	x, log, err := d.indexAndLog(base, offsetEntry)
	if err != nil {
		return err
	}
	if log != nil {
		defer log.Close()
	}
	if len(x.entries) == 0 {
		d.printf("%s is empty.\n", d.path)
	}
	c := offsetIndexChecker{base: base}
	for i := range len(x.entries) / offsetEntry {
		rel, pos := offsetAt(x.entries, i)
		d.printf("offset: %d position: %d\n", base+rel, pos)
		if text := c.entry(rel, pos); text != "" {
			d.problem("%s", text)
		} else if text := lookUp(log, base+rel, pos); text != "" {
			d.problem("%s", text)
		}
	}
	d.endOfIndex(x)
	return nil
}

func (d *dumper) indexAndLog(base int64, entry int) (indexFile, vfs.File, error) {
	x, err := new(indexReader).read(d.fs, d.path, entry)
	if err != nil {
		return x, nil, err
	}
	log, found, err := openBeside(d.fs, d.path, base, extLog)
	if err == nil && !found {
		d.printf("No log beside it: entries are not looked up\n")
	}
	return x, log, err
}

// endOfIndex tells of what lies behind the entries.
func (d *dumper) endOfIndex(x indexFile) {
	if x.zeros > 0 {
		d.printf("Not used yet: %d bytes of zeros at the end, allocated ahead\n", x.zeros)
	}
	if x.odd > 0 {
		d.problem("%d bytes at the end are no whole entry", x.odd)
	}
}

// lookUp tells what is wrong with an offset index's entry: at its position must
// begin an entry whose offsets are not above it.
func lookUp(log vfs.File, off, pos int64) string {
	if log == nil {
		return ""
	}
	r, err := newInspector(log)
	if err != nil {
		return err.Error()
	}
	r.pos = pos
	e, err := r.next()
	switch {
	case err == io.EOF:
		return fmt.Sprintf("position %d is beyond the end of the log", pos)
	case err != nil:
		return fmt.Sprintf("position %d of the log: %v", pos, err)
	case int64(e.First) > off:
		return fmt.Sprintf("offset %d points to the batch of offsets %d-%d", off, e.First, e.Last)
	}
	return ""
}

// timeIndex prints the entries and compares them with the log.
func (d *dumper) timeIndex(base int64) error {
	x, log, err := d.indexAndLog(base, timeEntry)
	if err != nil {
		return err
	}
	if len(x.entries) == 0 && x.zeros == timeEntry { // a record of 1970 at the base offset
		x.entries, x.zeros = make([]byte, timeEntry), 0
	}
	largest := &largestTimestamp{times: noTimes, upTo: cluster.NoOffset}
	if log != nil {
		defer log.Close()
		if largest.r, err = newInspector(log); err != nil {
			return err
		}
	}
	c := timeIndexChecker{base: base}
	for i := range len(x.entries) / timeEntry {
		ts, rel := timeAt(x.entries, i)
		d.printf("timestamp: %d offset: %d\n", ts, base+rel)
		text := c.entry(ts, rel)
		if text == "" && log != nil {
			text, err = largest.compare(ts, base+rel)
		}
		if err != nil {
			return err
		}
		if text != "" {
			d.problem("%s", text)
		}
	}
	d.endOfIndex(x)
	return nil
}

// largestTimestamp walks a log and knows the largest timestamps so far.
type largestTimestamp struct {
	r     *inspector
	times largestTimes
	upTo  cluster.Offset // last offset of the batches walked over
}

// compare tells what is wrong with an entry of the time index; offsets rise.
func (l *largestTimestamp) compare(ts, off int64) (string, error) {
	for l.upTo < cluster.Offset(off) {
		e, err := l.r.next()
		if err == io.EOF || isLogEnd(err) {
			return fmt.Sprintf("timestamp %d at offset %d, beyond the last valid batch", ts, off), nil
		}
		if err != nil {
			return "", err
		}
		l.times.saw(&e)
		l.upTo = max(l.upTo, e.Last)
	}
	return l.times.mismatch(ts, off), nil
}
