package logstore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/kbroker/kbroker/config"
)

// logDir is one of log.dirs. Once failed it stays so until the next start: what
// a disk answered after an error cannot be relied on.
type logDir struct {
	store   *Store
	path    string
	lock    io.Closer // nil when the directory was offline from the start
	failed  atomic.Pointer[dirFailure]
	clean   bool        // it was stopped cleanly before this start
	doubt   bool        // its boot file says so
	lowered atomic.Bool // a recovery point was found beyond its log's end

	hasCleaned atomic.Bool // there is a cleaner's checkpoint to be kept in step

	ckpt    sync.Mutex                   // one writer of its checkpoint files
	written map[string][sha256.Size]byte // what was written last, by file; guarded by ckpt

	hws  offsetMap // the high watermarks as loaded; not changed afterwards
	disk disk
}

type dirFailure struct{ err error }

// check is ErrStorage once the directory has failed.
func (d *logDir) check() error {
	if f := d.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail judges an error of a file operation in the directory and returns what
// the caller is told. It may be called under any lock: the callback comes from
// another goroutine.
func (d *logDir) fail(op string, err error) error {
	for _, known := range []error{ErrStorage, ErrClosed, ErrCorruptLog, ErrOffsetOutOfRange} {
		if errors.Is(err, known) {
			return err
		}
	}
	if outOfFiles(err) {
		return fmt.Errorf("%w for now: %s: %v", ErrStorage, op, err)
	}
	f := &dirFailure{fmt.Errorf("%w: %s: %s: %w", ErrStorage, d.path, op, err)}
	if d.failed.CompareAndSwap(nil, f) {
		e := d.store.log.Error()
		if !d.store.opened.Load() {
			e = d.store.log.Warn() // without any other directory, the start ends with an error of its own
		}
		e.Err(err).Str("dir", d.path).Str("op", op).Msg("log directory goes offline")
		d.store.dirFailed(d, f.err)
	}
	return d.check()
}

// configTable keeps one value for all logs with the same topic configuration.
type configTable struct {
	mu     sync.Mutex
	topics map[string]*config.Log
}

func (t *configTable) intern(topic string, cfg config.Log) *config.Log {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.topics[topic]; old != nil && reflect.DeepEqual(*old, cfg) {
		return old
	}
	if t.topics == nil {
		t.topics = make(map[string]*config.Log)
	}
	t.topics[topic] = &cfg
	return &cfg
}

// of is the configuration of a topic that is being loaded: asked for once.
func (t *configTable) of(topic string, ask func(string) config.Log) *config.Log {
	t.mu.Lock()
	old := t.topics[topic]
	t.mu.Unlock()
	if old != nil {
		return old
	}
	return t.intern(topic, ask(topic))
}
