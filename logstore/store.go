package logstore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/vfs"
)

type offsetMap = map[cluster.TopicPartition]cluster.Offset

// Store is all logs of a broker, in one or more log directories. One directory
// may fail without the others.
type Store struct {
	opts  Options
	fs    vfs.FS
	clock clock.Clock
	log   zerolog.Logger

	files   *fileCache
	images  *indexCache
	sched   *scheduler
	cleaner *cleaners // nil: nothing is compacted
	configs configTable
	dirs    []*logDir
	stats   LoadStats

	opened      atomic.Bool
	reckoned    sync.Once
	brokerEpoch atomic.Int64
	sweeps      atomic.Int64 // counts the sweeps for idle logs

	topology sync.Mutex     // serialises creation and deletion of logs
	idReads  sync.Mutex     // one partition.metadata is read at a time; see readTopicID
	calls    sync.WaitGroup // OnDirFailure under way

	mu       sync.RWMutex
	logs     map[cluster.TopicPartition]*Log
	future   map[cluster.TopicPartition]*Log
	strays   []string
	newIDs   []*Log // whose partition.metadata is to be written
	hwSource func() map[cluster.TopicPartition]cluster.Offset
	closed   bool
}

// Open locks the log directories, checks that they are this broker's, and loads
// every log in them; those of a directory that was not stopped cleanly are
// recovered first. A directory that cannot be used goes offline; Open fails when
// none is left, when another process holds one, or when one is not this
// broker's.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	s := &Store{
		opts: o, fs: o.FS, clock: o.Clock, log: o.Logger,
		files:  newFileCache(o.FS, o.MaxOpenFiles),
		images: &indexCache{max: indexCacheBytes},
		sched:  newScheduler(o.Clock),
		logs:   make(map[cluster.TopicPartition]*Log),
		future: make(map[cluster.TopicPartition]*Log),
	}
	s.brokerEpoch.Store(int64(cluster.NoBrokerEpoch))
	if err := s.open(); err != nil {
		s.abandon()
		return nil, err
	}
	s.opened.Store(true)
	s.schedule()
	if o.Cleaner != nil {
		s.cleaner = newCleaners(s)
		s.cleaner.start()
	}
	return s, nil
}

func (s *Store) open() error {
	if err := s.openDirs(); err != nil {
		return err
	}
	if err := s.claimDirs(); err != nil {
		return err
	}
	if err := s.loadDirs(); err != nil {
		return err
	}
	if err := s.settleBoot(); err != nil {
		return err
	}
	return s.anyDir()
}

// anyDir is an error when every directory is offline.
func (s *Store) anyDir() error {
	var errs []error
	for _, d := range s.dirs {
		err := d.check()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no usable log directory: %w", errors.Join(errs...))
}

// openDirs makes and locks the directories.
func (s *Store) openDirs() error {
	if len(s.opts.Dirs) == 0 {
		return errors.New("no log directory is configured")
	}
	for _, path := range s.opts.Dirs {
		path = filepath.Clean(path)
		if slices.ContainsFunc(s.dirs, func(d *logDir) bool { return d.path == path }) {
			return fmt.Errorf("log directory %s is configured twice", path)
		}
		d := &logDir{store: s, path: path, written: make(map[string][sha256.Size]byte), disk: newDisk()}
		s.dirs = append(s.dirs, d)
		if err := s.lockDir(d); errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("%s: %w", path, ErrDirLocked)
		} else if err != nil {
			_ = d.fail("opening the log directory", err)
		}
	}
	return s.anyDir()
}

func (s *Store) lockDir(d *logDir) error {
	there, err := vfs.Exists(s.fs, d.path)
	if err != nil {
		return err
	}
	if !there {
		if err := s.fs.MkdirAll(d.path); err != nil {
			return err
		}
		if err := s.fs.SyncDir(filepath.Dir(d.path)); err != nil {
			return err
		}
	}
	d.lock, err = s.fs.Lock(filepath.Join(d.path, lockFile))
	return err
}

// claimDirs checks meta.properties of all directories before it writes any.
func (s *Store) claimDirs() error {
	for _, d := range s.online() {
		m, _, err := readMetaProperties(s.fs, d.path)
		if err == nil {
			err = m.check(filepath.Join(d.path, metaPropertiesFile), s.opts.BrokerID, s.opts.ClusterID)
		}
		if errors.Is(err, ErrMetaProperties) {
			return err
		}
		if err != nil {
			_ = d.fail("reading meta.properties", err)
		}
	}
	for _, d := range s.online() {
		if err := ensureMetaProperties(s.fs, d.path, s.opts.BrokerID, s.opts.ClusterID); err != nil {
			_ = d.fail("writing meta.properties", err)
		}
	}
	return s.anyDir()
}

// Identity reads to which broker and cluster log directories belong, before a
// Store is opened on them: NoBroker and "" where they do not say. Directories
// that contradict each other are an error.
func Identity(f vfs.FS, dirs []string) (cluster.BrokerID, string, error) {
	all := metaProperties{BrokerID: cluster.NoBroker}
	for _, dir := range dirs {
		m, found, err := readMetaProperties(f, dir)
		if errors.Is(err, ErrMetaProperties) {
			return cluster.NoBroker, "", err
		}
		if err != nil || !found {
			continue // Open takes a directory that cannot be read offline
		}
		if err := m.check(filepath.Join(dir, metaPropertiesFile), all.BrokerID, all.ClusterID); err != nil {
			return cluster.NoBroker, "", err
		}
		if m.BrokerID >= 0 {
			all.BrokerID = m.BrokerID
		}
		if m.ClusterID != "" {
			all.ClusterID = m.ClusterID
		}
	}
	return all.BrokerID, all.ClusterID, nil
}

func (s *Store) online() []*logDir {
	var list []*logDir
	for _, d := range s.dirs {
		if d.check() == nil {
			list = append(list, d)
		}
	}
	return list
}

func (s *Store) nowMs() int64 { return s.clock.Now().UnixMilli() }

// dirFailed is told once of each directory that fails. It may run under any
// lock of a log.
func (s *Store) dirFailed(d *logDir, err error) {
	if !s.opened.Load() {
		return // Open's caller looks at Dirs
	}
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		s.mu.RLock()
		var logs []*Log
		for _, m := range [...]map[cluster.TopicPartition]*Log{s.logs, s.future} {
			for _, l := range m {
				if l.dir == d {
					logs = append(logs, l)
				}
			}
		}
		s.mu.RUnlock()
		for _, l := range logs {
			l.dropFiles()
		}
		s.opts.OnDirFailure(d.path, err)
	}()
}

// dropFiles closes the log's files once their readers are done.
func (l *Log) dropFiles() {
	l.state.Lock()
	segs := l.segs
	l.state.Unlock()
	for _, g := range segs {
		l.store.files.drop(g)
	}
}

// Stats tells what Open did.
func (s *Store) Stats() LoadStats { return s.stats }

// Logs lists the logs, by topic and partition.
func (s *Store) Logs() []*Log {
	s.mu.RLock()
	list := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		list = append(list, l)
	}
	s.mu.RUnlock()
	slices.SortFunc(list, func(a, b *Log) int { return a.tp.Compare(b.tp) })
	return list
}

// Log finds a log. One in a directory that went offline is still found: its
// methods fail with ErrStorage.
func (s *Store) Log(tp cluster.TopicPartition) (*Log, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, ok := s.logs[tp]
	return l, ok
}

// Future finds the log that is to replace another one in a move between log
// directories.
func (s *Store) Future(tp cluster.TopicPartition) (*Log, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, ok := s.future[tp]
	return l, ok
}

// Strays lists the directories of partitions that were set aside, by path. They
// are neither served nor deleted.
func (s *Store) Strays() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.strays)
}

// Dirs describes the log directories, in the order of the configuration.
func (s *Store) Dirs() []DirInfo {
	list := make([]DirInfo, len(s.dirs))
	for i, d := range s.dirs {
		list[i] = DirInfo{Path: d.path, Err: d.check(), TotalBytes: -1, UsableBytes: -1}
		if u, err := s.fs.Usage(d.path); err == nil && list[i].Err == nil {
			list[i].TotalBytes, list[i].UsableBytes = u.Total, u.Usable
		}
	}
	return list
}

// SetBrokerEpoch is what the marker of a clean stop will say.
func (s *Store) SetBrokerEpoch(e cluster.BrokerEpoch) { s.brokerEpoch.Store(int64(e)) }

// SetHighWatermarkSource makes the checkpoint of high watermarks ask f rather
// than rely on HighWatermarkMoved. f is called under no lock.
func (s *Store) SetHighWatermarkSource(f func() map[cluster.TopicPartition]cluster.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hwSource = f
}

// LoadHighWatermarks is what the checkpoint said when the store was opened, of
// the logs that there are, and not above their ends.
func (s *Store) LoadHighWatermarks() map[cluster.TopicPartition]cluster.Offset {
	all := make(offsetMap)
	for _, l := range s.Logs() {
		if off, ok := l.dir.hws[l.tp]; ok {
			all[l.tp] = min(off, l.LEO())
		}
	}
	return all
}

// abandon gives up a store that did not open.
func (s *Store) abandon() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.cleaner != nil {
		s.cleaner.close()
	}
	s.sched.close()
	s.unlock()
	s.calls.Wait()
}

func (s *Store) unlock() {
	for _, d := range s.dirs {
		if d.lock != nil {
			_ = d.lock.Close()
			d.lock = nil
		}
	}
}
