package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/internal/vfs"
)

const (
	fileName = "kbroker.meta"
	newName  = "kbroker.meta.new" // a compaction that has not been renamed yet
	lockName = "kbroker.meta.lock"

	// maxFile bounds what is read into memory at the start.
	maxFile = 8 << 30
	// chunkBytes is about how long a chunk of a snapshot is.
	chunkBytes = 1 << 20
	// defaultSlack is how much is journaled before a compaction is worth it.
	defaultSlack = 4 << 20
)

// journal is the file: a snapshot and the batches since. All but open is called
// by the committer only.
type journal struct {
	fs    vfs.FS
	dir   string
	slack int64
	log   zerolog.Logger
	file  vfs.File

	size      int64 // up to here everything is durable
	compactAt int64 // size from which a compaction is tried
	broken    error // why nothing can be written any more
}

func (j *journal) path(name string) string { return filepath.Join(j.dir, name) }

// openJournal reads the file, or makes it, in a directory that is locked.
func openJournal(f vfs.FS, dir string, slack int64, log zerolog.Logger) (*journal, *tree, error) {
	j := &journal{fs: f, dir: dir, slack: slack, log: log}
	if err := f.Remove(j.path(newName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	there, err := vfs.Exists(f, j.path(fileName))
	if err != nil {
		return nil, nil, err
	}
	if !there {
		t := newTree()
		return j, t, j.rewrite(t)
	}
	if j.file, err = f.OpenFile(j.path(fileName), os.O_RDWR); err != nil {
		return nil, nil, err
	}
	t, err := j.load()
	if err != nil {
		j.file.Close()
		return nil, nil, fmt.Errorf("%s: %w", j.path(fileName), err)
	}
	return j, t, nil
}

func (j *journal) load() (*tree, error) {
	buf, err := vfs.ReadFile(j.fs, j.path(fileName), maxFile)
	if err != nil {
		return nil, err
	}
	t, snapshot, good, err := decodeFile(buf)
	if err != nil {
		return nil, err
	}
	j.size = int64(good)
	j.compactAt = 2*int64(snapshot) + j.slack
	if torn := len(buf) - good; torn > 0 {
		j.log.Warn().Str("file", j.path(fileName)).Int("bytes", torn).Int("offset", good).
			Msg("cut off the end of the metadata file, which a crash left incomplete: nothing in it was ever acknowledged")
		if err := j.cut(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// decodeFile rebuilds the tree from a whole file. It says where the snapshot
// and where the last whole batch ends. What follows that must be the rest of
// one unacknowledged write; a damage before is an error, not a loss.
func decodeFile(buf []byte) (t *tree, snapshot, good int, err error) {
	if err := checkHeader(buf); err != nil {
		return nil, 0, 0, err
	}
	t = newTree()
	ended := false
	rest := buf[headerLen:]
	for len(rest) > 0 {
		offset := len(buf) - len(rest)
		body, next, err := splitFrame(rest, int64(offset))
		if err != nil {
			if at := wholeFrameAfter(rest[1:], int64(offset)+1); at >= 0 || !ended {
				return nil, 0, 0, fmt.Errorf("damaged at byte %d of %d: it was changed from outside or the disk fails; restore it from a copy", offset, len(buf))
			}
			return t, snapshot, offset, nil
		}
		if ended, err = t.load(body, ended); err != nil {
			return nil, 0, 0, fmt.Errorf("at byte %d of %d: %w", offset, len(buf), err)
		}
		rest = next
		if frameType(body[0]) == frameEnd {
			snapshot = len(buf) - len(rest)
		}
	}
	if !ended {
		return nil, 0, 0, errors.New("the snapshot is incomplete")
	}
	return t, snapshot, len(buf), nil
}

// wholeFrameAfter finds a valid frame in buf, which is the file from offset on.
func wholeFrameAfter(buf []byte, offset int64) int64 {
	mark := binary.BigEndian.AppendUint32(nil, frameMark)
	for at := 0; ; at++ {
		i := bytes.Index(buf[at:], mark)
		if i < 0 {
			return -1
		}
		at += i
		if _, _, err := splitFrame(buf[at:], offset+int64(at)); err == nil {
			return offset + int64(at)
		}
	}
}

// load takes one frame's body into the tree. ended says whether the snapshot's
// end has been seen, before and after.
func (t *tree) load(body []byte, ended bool) (bool, error) {
	r := &reader{buf: body[1:]}
	kind := frameType(body[0])
	switch {
	case kind == frameChunk && !ended:
		for len(r.buf) > 0 {
			path, n := r.node()
			if r.err != nil {
				return false, r.err
			}
			if err := t.loadNode(path, n); err != nil {
				return false, err
			}
		}
		return false, nil
	case kind == frameEnd && !ended:
		t.zxid = r.varint()
		if count := r.uvarint(); r.err == nil && count != uint64(len(t.nodes)) {
			return false, fmt.Errorf("the snapshot has %d znodes instead of %d", len(t.nodes), count)
		}
		return true, r.err
	case kind == frameBatch && ended:
		for len(r.buf) > 0 {
			x := r.txn()
			if r.err != nil {
				return true, r.err
			}
			if err := t.replay(x); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	return ended, fmt.Errorf("a record of type %d is out of place: the file was written by a newer kbroker", kind)
}

func (t *tree) loadNode(path string, n *node) error {
	if path == "/" {
		if len(t.nodes) > 1 {
			return errors.New("the root is not the snapshot's first")
		}
		t.nodes["/"] = n
		return nil
	}
	return t.insert(path, n)
}

func (t *tree) replay(x txn) error {
	if x.zxid <= t.zxid {
		return fmt.Errorf("transaction %d comes after %d", x.zxid, t.zxid)
	}
	t.zxid = x.zxid
	for _, c := range x.changes {
		if _, err := t.apply(c, x.zxid, x.timeMs); err != nil {
			return fmt.Errorf("transaction %d: %w", x.zxid, err)
		}
	}
	return nil
}

// append makes a batch durable. When it fails the file is as before, so that
// the batch has definitely not happened, or the journal is broken. The tree is
// as before the batch.
func (j *journal) append(body []byte, t *tree) error {
	if j.broken != nil {
		return j.broken
	}
	_, err := j.file.WriteAt(appendFrame(nil, j.size, body), j.size)
	if err != nil {
		if cutErr := j.cut(); cutErr == nil {
			return fmt.Errorf("writing %s: %w", j.path(fileName), err)
		}
	} else if err = j.file.Sync(); err == nil {
		j.size += int64(frameHeader + len(body))
		return nil
	}
	// After a failed fsync nobody knows what is on the disk, and a second one
	// may report success for lost pages: only a new file is trusted.
	if rewriteErr := j.rewrite(t); rewriteErr != nil {
		j.broken = fmt.Errorf("%s can no longer be written: %w", j.path(fileName), errors.Join(err, rewriteErr))
		return j.broken
	}
	return fmt.Errorf("writing %s: %w", j.path(fileName), err)
}

// cut drops what is beyond size.
func (j *journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	return j.file.Sync()
}

// maybeCompact rewrites the file when most of it is history. A failure costs
// nothing but space; it is tried again after as much again.
func (j *journal) maybeCompact(t *tree) {
	if j.size < j.compactAt || j.broken != nil {
		return
	}
	if err := j.rewrite(t); err != nil && j.broken == nil {
		j.compactAt = j.size + j.slack
		j.log.Warn().Err(err).Msg("compacting the metadata file failed, it goes on growing")
	}
}

// rewrite writes the tree to a new file and puts that in the old one's place:
// write, fsync, rename, fsync of the directory. Until the rename the old file
// is untouched.
func (j *journal) rewrite(t *tree) error {
	file, size, err := j.writeSnapshot(t)
	if err != nil {
		j.fs.Remove(j.path(newName))
		return err
	}
	if err := j.fs.Rename(j.path(newName), j.path(fileName)); err != nil {
		file.Close()
		j.fs.Remove(j.path(newName))
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.compactAt = file, size, 2*size+j.slack
	if err := j.fs.SyncDir(j.dir); err != nil {
		// The name may or may not survive a crash, and with it all that would
		// be appended from now on.
		j.broken = fmt.Errorf("%s: fsync of the directory: %w", j.path(fileName), err)
		return j.broken
	}
	return nil
}

func (j *journal) writeSnapshot(t *tree) (vfs.File, int64, error) {
	file, err := j.fs.Create(j.path(newName))
	if err != nil {
		return nil, 0, err
	}
	size := int64(0)
	write := func(b []byte) {
		if err == nil {
			_, err = file.WriteAt(b, size)
			size += int64(len(b))
		}
	}
	write(encodeHeader())
	body := []byte{byte(frameChunk)}
	for _, path := range t.sortedPaths() {
		body = appendNode(body, path, t.nodes[path])
		if len(body) >= chunkBytes {
			write(appendFrame(nil, size, body))
			body = body[:1]
		}
	}
	if len(body) > 1 {
		write(appendFrame(nil, size, body))
	}
	end := binary.AppendVarint([]byte{byte(frameEnd)}, t.zxid)
	write(appendFrame(nil, size, binary.AppendUvarint(end, uint64(len(t.nodes)))))
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, size, nil
}

func (j *journal) close() error { return j.file.Close() }
