package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// txnEntrySize is the size of an entry of a .txnindex file: int16 version 0,
// then producer id, first offset, last offset and last stable offset as int64.
const txnEntrySize = 2 + 4*8

// txnCached is how many entries of one index are kept in memory, and txnChunk
// how many are read at once where there are more.
const (
	txnCached = 1024
	txnChunk  = 1024
)

// abortedEntry is an aborted transaction whose marker, at Last, lies in the
// index's segment. First may lie in an earlier one. No transaction that is
// completed later begins below LastStable.
type abortedEntry struct {
	ProducerID  cluster.ProducerID
	First, Last cluster.Offset
	LastStable  cluster.Offset
}

func appendAborted(b []byte, e abortedEntry) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, 0)
	b = be.AppendUint64(b, uint64(e.ProducerID))
	b = be.AppendUint64(b, uint64(e.First))
	b = be.AppendUint64(b, uint64(e.Last))
	return be.AppendUint64(b, uint64(e.LastStable))
}

// parseAborted reads one entry of at least txnEntrySize bytes.
func parseAborted(b []byte) (abortedEntry, error) {
	be := binary.BigEndian
	if v := be.Uint16(b); v != 0 {
		return abortedEntry{}, fmt.Errorf("%w: version %d of an aborted transaction, want 0", errBadIndex, v)
	}
	return abortedEntry{
		ProducerID: cluster.ProducerID(be.Uint64(b[2:])),
		First:      cluster.Offset(be.Uint64(b[10:])),
		Last:       cluster.Offset(be.Uint64(b[18:])),
		LastStable: cluster.Offset(be.Uint64(b[26:])),
	}, nil
}

// txnIndex is the aborted transactions of one segment. The file exists only
// once there is one, and is open only while it is used: most partitions have
// none. Entries rise by Last. It is not safe for concurrent use, but collect may
// run beside itself.
type txnIndex struct {
	fs    vfs.FS
	path  string
	base  cluster.Offset // of the segment
	count int64          // entries in the file
	last  cluster.Offset // Last of the newest entry; NoOffset without one

	cache []abortedEntry // all entries, or nil where there are more than txnCached
}

// openTxnIndex reads the index of a segment; a missing file is an empty index.
// What is wrong with it is errBadIndex: it has to be rebuilt from the log.
func openTxnIndex(f vfs.FS, path string, base cluster.Offset) (*txnIndex, error) {
	x := &txnIndex{fs: f, path: path, base: base, last: cluster.NoOffset}
	file, err := f.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size%txnEntrySize != 0 {
		return nil, fmt.Errorf("%s: %w: %d bytes are not whole entries", path, errBadIndex, size)
	}
	if err := x.load(file, size/txnEntrySize); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return x, nil
}

// load checks all entries and keeps them if they are few.
func (x *txnIndex) load(file vfs.File, count int64) error {
	keep := count <= txnCached
	err := eachAborted(file, 0, count, func(e abortedEntry) (bool, error) {
		if err := x.admit(e); err != nil {
			return false, err
		}
		x.count, x.last = x.count+1, e.Last
		if keep {
			x.cache = append(x.cache, e)
		}
		return true, nil
	})
	return err
}

func (x *txnIndex) admit(e abortedEntry) error {
	switch {
	case e.First < 0 || e.First > e.Last || e.Last < x.base:
		return fmt.Errorf("%w: aborted transaction %d-%d in the segment that begins at %d", errBadIndex, e.First, e.Last, x.base)
	case e.Last <= x.last:
		return fmt.Errorf("%w: aborted transaction that ends at %d after one that ends at %d", errBadIndex, e.Last, x.last)
	}
	return nil
}

// eachAborted calls f with the entries from..count until it returns false.
func eachAborted(r io.ReaderAt, from, count int64, f func(abortedEntry) (bool, error)) error {
	buf := make([]byte, txnEntrySize*min(txnChunk, max(0, count-from)))
	for i := from; i < count; {
		n := min(txnChunk, count-i)
		chunk := buf[:n*txnEntrySize]
		if _, err := r.ReadAt(chunk, i*txnEntrySize); err != nil {
			return shortRead(err)
		}
		for ; len(chunk) > 0; chunk = chunk[txnEntrySize:] {
			e, err := parseAborted(chunk)
			if err != nil {
				return err
			}
			more, err := f(e)
			if err != nil || !more {
				return err
			}
		}
		i += n
	}
	return nil
}

// append adds a transaction. Making it durable is the segment's business; the
// log is written before, so that recovery finds a lost entry again.
func (x *txnIndex) append(e abortedEntry) error {
	if err := x.admit(e); err != nil {
		return fmt.Errorf("%s: %w", x.path, err)
	}
	file, err := x.fs.OpenFile(x.path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(appendAborted(nil, e), x.count*txnEntrySize)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if x.cache != nil || x.count == 0 {
		x.cache = append(x.cache, e)
	}
	x.count, x.last = x.count+1, e.Last
	if x.count > txnCached {
		x.cache = nil
	}
	return nil
}

// collect appends to dst the aborted transactions that overlap from..upTo
// (exclusive), in the order in which they were aborted. done tells that no later
// segment has more of them.
func (x *txnIndex) collect(dst []abortedEntry, from, upTo cluster.Offset) (_ []abortedEntry, done bool, err error) {
	if x.count == 0 {
		return dst, false, nil
	}
	visit := func(e abortedEntry) bool {
		if e.Last >= from && e.First < upTo {
			dst = append(dst, e)
		}
		done = e.LastStable >= upTo
		return !done
	}
	if x.cache != nil {
		i := sort.Search(len(x.cache), func(i int) bool { return x.cache[i].Last >= from })
		for ; i < len(x.cache) && visit(x.cache[i]); i++ {
		}
		return dst, done, nil
	}
	err = x.read(func(file vfs.File) error {
		first, err := x.firstFrom(file, from)
		if err != nil {
			return err
		}
		return eachAborted(file, first, x.count, func(e abortedEntry) (bool, error) { return visit(e), nil })
	})
	return dst, done, err
}

func (x *txnIndex) read(f func(vfs.File) error) error {
	file, err := x.fs.Open(x.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := f(file); err != nil {
		return fmt.Errorf("%s: %w", x.path, err)
	}
	return nil
}

// firstFrom is the number of the first entry whose marker is at or above from.
func (x *txnIndex) firstFrom(r io.ReaderAt, from cluster.Offset) (int64, error) {
	var buf [txnEntrySize]byte
	lo, hi := int64(0), x.count
	for lo < hi {
		mid := (lo + hi) / 2
		if _, err := r.ReadAt(buf[:], mid*txnEntrySize); err != nil {
			return 0, shortRead(err)
		}
		e, err := parseAborted(buf[:])
		if err != nil {
			return 0, err
		}
		if e.Last < from {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// all returns every entry.
func (x *txnIndex) all() ([]abortedEntry, error) {
	list, _, err := x.collect(nil, 0, 1<<63-1)
	return list, err
}

// truncateTo forgets the transactions whose markers are at offset or above.
func (x *txnIndex) truncateTo(offset cluster.Offset) error {
	if x.count == 0 || x.last < offset {
		return nil
	}
	file, err := x.fs.OpenFile(x.path, os.O_RDWR)
	if err != nil {
		return err
	}
	n, err := x.firstFrom(file, offset)
	if err == nil {
		err = file.Truncate(n * txnEntrySize)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return x.reload()
}

// reset forgets all transactions, for a rebuild. The file goes.
func (x *txnIndex) reset() error {
	err := x.fs.Remove(x.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		x.count, x.last, x.cache = 0, cluster.NoOffset, nil
	}
	return err
}

func (x *txnIndex) reload() error {
	fresh, err := openTxnIndex(x.fs, x.path, x.base)
	if err != nil {
		return err
	}
	*x = *fresh
	return nil
}
