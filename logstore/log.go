package logstore

import (
	"fmt"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
	"github.com/kbroker/kbroker/logstore/producers"
)

// Log is one partition's log. Its methods are safe for concurrent use.
//
// LogStart <= recoveryPoint <= LEO, as soon as data was flushed up to LogStart;
// segs is never empty while the log is open, sorted by base, the first one
// holds or precedes LogStart, and the last one is appended to.
type Log struct {
	store *Store
	dir   *logDir
	tp    cluster.TopicPartition
	name  atomic.Pointer[string] // of the directory, when it is not TOPIC-PARTITION
	cfg   atomic.Pointer[config.Log]

	flushing sync.Mutex // one fsync at a time; never taken under append
	append   sync.Mutex // see doc.go

	// Written under append and state, read without a lock.
	leo      atomic.Int64
	logStart atomic.Int64
	gen      atomic.Uint64 // counts truncations

	metadataDue atomic.Bool // partition.metadata is to be written before any data
	idUnread    atomic.Bool // or was not read yet: topicID means nothing

	state sync.Mutex
	// Guarded by state.
	segs          []*segment // never changed in place
	size          int64      // sum of the segments' sizes
	hw            int64      // as last told; what lies above is not deleted
	hwTold        bool       // since the start
	recoveryPoint int64      // all batches below are durable; see safePointLocked
	sealedFrom    int64      // base of the oldest segment that was sealed and not synced since; -1 none
	syncingFrom   int64      // the same, while a flush is under way
	closing       bool       // nothing is appended any more
	closed        bool       // and nothing is read
	topicID       cluster.TopicID
	cleanedTo     int64 // compaction has been up to here; NoOffset for never, and then nothing is checkpointed
	cleaning      bool  // compaction or its retention is at work
	uncleanable   error // why compaction leaves the log alone until the next start
	epochs        epochs.Cache
	producers     producers.State

	recent *recentAppends

	// Guarded by append.
	snapshots   []int64 // offsets of the .snapshot files, rising
	lastSnap    int64   // offset of the last snapshot taken or loaded, or the log's start
	unsynced    unsynced
	epochsLazy  bool  // the checkpoint was written for an epoch without records, and is synced with the first; guarded by append
	epochsDue   bool  // the checkpoint differs in epochs without records; guarded by append
	lastFlush   int64 // ms
	lastTouched int64 // the store's sweep at which it was appended to last
}

var emptyEpochs epochs.Cache

// unsynced is what was written without an fsync and has to have one before the
// recovery point may pass.
type unsynced struct {
	epochs    bool       // leader-epoch-checkpoint
	dir       bool       // names in the partition's directory
	root      bool       // the partition's own name, in the log directory
	snapshots []int64    // .snapshot files
	sealed    []*segment // segments that were rolled or whose indexes were rebuilt
}

// config is the log's configuration; it is never written to.
func (l *Log) config() *config.Log { return l.cfg.Load() }

func (l *Log) dirName() string {
	if n := l.name.Load(); n != nil {
		return *n
	}
	return l.tp.String()
}

func (l *Log) path() string { return filepath.Join(l.dir.path, l.dirName()) }

func (l *Log) file(name string) string { return filepath.Join(l.path(), name) }

// TopicPartition names the log.
func (l *Log) TopicPartition() cluster.TopicPartition { return l.tp }

// TopicID is the topic's id; zero when none is known.
func (l *Log) TopicID() cluster.TopicID {
	l.readTopicID()
	l.state.Lock()
	defer l.state.Unlock()
	return l.topicID
}

// Dir is the log directory that the log lies in.
func (l *Log) Dir() string { return l.dir.path }

// Size is the number of bytes of all batches.
func (l *Log) Size() int64 {
	l.state.Lock()
	defer l.state.Unlock()
	return l.size
}

// Segments is the number of segments.
func (l *Log) Segments() int {
	l.state.Lock()
	defer l.state.Unlock()
	return len(l.segs)
}

// LogStart is the first offset that may be read.
func (l *Log) LogStart() cluster.Offset { return cluster.Offset(l.logStart.Load()) }

// LEO is the offset of the next record.
func (l *Log) LEO() cluster.Offset { return cluster.Offset(l.leo.Load()) }

// Generation counts truncations: what was read under another one may not be
// what is stored now.
func (l *Log) Generation() uint64 { return l.gen.Load() }

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() cluster.Offset {
	l.state.Lock()
	defer l.state.Unlock()
	return cluster.Offset(l.recoveryPoint)
}

// safePointLocked is the recovery point as the next start may be told of it. It
// lies within or below every segment whose indexes are not durable, because a
// recovery rebuilds those of the segment that holds it and of later ones only:
// so it is below LEO while there is something in the active segment, which may
// be sealed at LEO at any time.
func (l *Log) safePointLocked() int64 {
	p := l.recoveryPoint
	if a := l.active(); p >= l.leo.Load() && p > a.base && !l.closing {
		p = l.leo.Load() - 1
	}
	for _, from := range [...]int64{l.sealedFrom, l.syncingFrom} {
		if from >= 0 {
			p = min(p, from)
		}
	}
	return p
}

// Config is the effective configuration. It must not be changed.
func (l *Log) Config() *config.Log { return l.cfg.Load() }

// SetConfig changes the configuration for what is done from now on.
func (l *Log) SetConfig(cfg config.Log) { l.cfg.Store(l.store.configs.intern(l.tp.Topic, cfg)) }

// Offline is why the log cannot be used, nil while it can.
func (l *Log) Offline() error {
	l.state.Lock()
	defer l.state.Unlock()
	return l.usableLocked()
}

func (l *Log) usableLocked() error {
	if l.closed || l.closing {
		return ErrClosed
	}
	return l.dir.check()
}

// wrap names the partition in an error.
func (l *Log) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", l.tp, err)
}

// ioError judges a failed file operation: the log directory goes offline,
// unless the log was closed meanwhile or only descriptors ran out.
func (l *Log) ioError(op string, err error) error {
	l.state.Lock()
	closed := l.closed
	l.state.Unlock()
	if closed {
		return ErrClosed
	}
	return l.dir.fail(fmt.Sprintf("%s of %s", op, l.tp), err)
}

// active is the segment that is appended to. The caller holds append or state.
func (l *Log) active() *segment { return l.segs[len(l.segs)-1] }

// floorSegment is the index of the last segment whose base is at most off; 0
// when there is none.
func floorSegment(segs []*segment, off int64) int {
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > off })
	return max(i-1, 0)
}

// endOf is the offset at which a segment ends, exclusive: the next one's base,
// or LEO.
func (l *Log) endOf(s *segment) int64 {
	l.state.Lock()
	defer l.state.Unlock()
	return l.endOfLocked(s)
}

func (l *Log) endOfLocked(s *segment) int64 {
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base > s.base })
	if i < len(l.segs) {
		return l.segs[i].base
	}
	return max(l.leo.Load(), s.base)
}

// FirstUnstable is the first offset whose transaction is undecided, or decided
// by a marker that is not replicated yet.
func (l *Log) FirstUnstable() (cluster.Offset, bool) {
	l.state.Lock()
	defer l.state.Unlock()
	off, ok := l.producers.FirstUnstable()
	if ok {
		off = max(off, l.LogStart())
	}
	return off, ok
}

// LSO is the last stable offset under a high watermark. LogStart <= LSO <= hw.
func (l *Log) LSO(hw cluster.Offset) cluster.Offset {
	l.state.Lock()
	defer l.state.Unlock()
	return l.producers.LSO(l.LogStart(), hw)
}

// HighWatermarkMoved tells the log its high watermark: transactions below it
// are stable, and segments below it may be deleted.
func (l *Log) HighWatermarkMoved(hw cluster.Offset) {
	l.state.Lock()
	defer l.state.Unlock()
	l.hw, l.hwTold = int64(hw), true
	l.producers.HighWatermarkMoved(hw)
}

// LatestEpoch is the newest leader epoch in the history, or NoLeaderEpoch.
func (l *Log) LatestEpoch() cluster.LeaderEpoch { return l.Epochs().LatestEpoch() }

// Epochs is the history of leader epochs, an immutable view.
func (l *Log) Epochs() epochs.Cache {
	l.state.Lock()
	defer l.state.Unlock()
	return l.epochs
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest known epoch not
// above e, and where it ends; (-1, -1) when nothing can be said.
func (l *Log) EndOffsetForEpoch(e cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset) {
	l.state.Lock()
	defer l.state.Unlock()
	return l.epochs.EndOffsetFor(e, l.LEO())
}

// BecomeLeaderEpoch notes that records of epoch begin at start, at once: a
// follower may ask before the first one is appended. The checkpoint file is
// written before that one is: until then the log has nothing of this epoch that
// could be lost, every load drops epochs without records, and a broker of many
// partitions has nothing to write for each when it starts and stops.
func (l *Log) BecomeLeaderEpoch(epoch cluster.LeaderEpoch, start cluster.Offset) error {
	l.append.Lock()
	defer l.append.Unlock()
	l.state.Lock()
	if err := l.usableLocked(); err != nil {
		l.state.Unlock()
		return l.wrap(err)
	}
	c, changed := l.epochs.Assign(epoch, start)
	l.epochs = c
	l.state.Unlock()
	l.epochsDue = l.epochsDue || changed
	if changed && l.unsynced.root { // a new log has the file from its first epoch on, as Kafka's
		l.epochsLazy = true
		return l.wrap(l.replaceEpochs())
	}
	return nil
}

// ActiveProducers lists the producers that the log remembers, by id.
func (l *Log) ActiveProducers() []ProducerInfo {
	l.state.Lock()
	active := l.producers.Active()
	l.state.Unlock()
	list := make([]ProducerInfo, len(active))
	for i, p := range active {
		list[i] = ProducerInfo{
			ID: p.ProducerID, Epoch: p.Epoch, LastSequence: p.LastSequence, LastTimestamp: p.LastTimestamp,
			CoordinatorEpoch: p.CoordinatorEpoch, TxnStart: p.TxnFirst,
		}
	}
	return list
}

// BeginTxnVerification is called before a transactional batch of a client is
// appended. When the producer's transaction is not open here yet it returns a
// guard: the transaction coordinator is to be asked, and the guard goes with
// the append (KIP-890).
func (l *Log) BeginTxnVerification(pid cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32) (g Guard, needed bool) {
	now := l.store.clock.Now().UnixMilli()
	l.state.Lock()
	defer l.state.Unlock()
	g = l.producers.StartVerification(pid, epoch, sequence, now)
	return g, g != producers.NoGuard
}

// HasLateTxn reports whether a transaction has been open for so long that
// nobody will end it.
func (l *Log) HasLateTxn() bool {
	now := l.store.clock.Now().UnixMilli()
	l.state.Lock()
	defer l.state.Unlock()
	return l.producers.HasLateTxn(now, l.store.opts.TxnMaxTimeout.Milliseconds())
}

// SetTopicID ties the log to its topic. A log that has another id is refused
// with ErrInconsistentTopicID. The file that keeps the id is written soon, and
// before any data.
func (l *Log) SetTopicID(id cluster.TopicID) error {
	l.readTopicID()
	l.state.Lock()
	defer l.state.Unlock()
	if id.IsZero() || l.topicID == id {
		return nil
	}
	if !l.topicID.IsZero() {
		return l.wrap(fmt.Errorf("%w: %s, the log has %s", ErrInconsistentTopicID, id, l.topicID))
	}
	l.topicID = id
	l.metadataDue.Store(true)
	return nil
}

// openFile and openRead open a file that is not a segment's log, making room
// among the open segments if the process is out of descriptors.
func (s *Store) openFile(name string, flag int) (vfs.File, error) {
	f, err := s.fs.OpenFile(name, flag)
	if outOfFiles(err) {
		s.files.evict(s.files.max / 8)
		f, err = s.fs.OpenFile(name, flag)
	}
	return f, err
}

func (s *Store) openRead(name string) (vfs.File, error) { return s.openFile(name, 0) }

func (s *Store) syncFile(name string) error {
	f, err := s.openRead(name)
	if err != nil {
		return err
	}
	err = f.Sync()
	f.Close()
	return err
}
