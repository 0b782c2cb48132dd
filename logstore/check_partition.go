package logstore

import (
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
	"github.com/kbroker/kbroker/logstore/producers"
	"github.com/kbroker/kbroker/protocol/record"
)

// partitionCheck reads one partition from its first byte to its last and follows
// its producers and epochs on the way.
type partitionCheck struct {
	*checker
	name string
	tp   cluster.TopicPartition
	kind dirKind

	files     map[string]bool
	bases     []int64 // of the segments
	snapshots []int64

	leo    cluster.Offset // after the last valid batch so far
	epoch  cluster.LeaderEpoch
	epochs epochs.Cache // as in the checkpoint
	known  bool         // the checkpoint could be read
	state  producers.State

	// compacted tells that offsets are missing so far: what producers wrote there
	// is not known, and their transactions may have begun earlier.
	compacted bool
}

// start is the log's start: below it, a producer may be known or forgotten.
func (p *partitionCheck) start() cluster.Offset {
	return max(cluster.Offset(p.bases[0]), p.points[logStartCheckpoint][p.tp])
}

func (p *partitionCheck) below(off cluster.Offset) bool { return off >= 0 && off < p.start() }

func (p *partitionCheck) path(name string) string { return filepath.Join(p.dir, p.name, name) }

func (p *partitionCheck) run() error {
	p.epoch = cluster.NoLeaderEpoch
	if err := p.list(); err != nil {
		return err
	}
	if err := p.topicID(); err != nil {
		return err
	}
	if err := p.epochCheckpoint(); err != nil {
		return err
	}
	if len(p.bases) == 0 {
		p.file(p.name)
		p.problem("no segment")
		return nil
	}
	p.leo = cluster.Offset(p.bases[0])
	if err := p.startState(); err != nil {
		return err
	}
	for i, base := range p.bases {
		if err := p.segment(i, base); err != nil {
			return err
		}
	}
	if err := p.lastSnapshots(); err != nil {
		return err
	}
	p.endOfEpochs()
	p.checkpoints()
	return nil
}

func (p *partitionCheck) list() error {
	list, err := p.fs.ReadDir(p.path(""))
	if err != nil {
		return err
	}
	p.files = map[string]bool{}
	var indexes []int64 // bases, of each file
	for _, e := range list {
		p.files[e.Name] = true
		base, ext, ok := parseFileName(e.Name)
		if !ok {
			continue
		}
		switch {
		case ext == extLog:
			p.bases = append(p.bases, base)
		case ext == extSnapshot:
			p.snapshots = append(p.snapshots, base)
		case ext == extIndex || ext == extTimeIndex || ext == extTxnIndex:
			indexes = append(indexes, base)
		}
	}
	slices.Sort(p.bases)
	slices.Sort(p.snapshots)
	return p.orphans(indexes)
}

// orphans are indexes without a log.
func (p *partitionCheck) orphans(bases []int64) error {
	slices.Sort(bases)
	for _, base := range slices.Compact(bases) {
		if p.files[fileName(base, extLog)] {
			continue
		}
		left, err := p.leftBehind(base)
		if err != nil {
			return err
		}
		begun := false
		if !left {
			if begun, err = p.begun(base); err != nil {
				return err
			}
		}
		for _, ext := range segmentExts {
			name := fileName(base, ext)
			p.file(filepath.Join(p.name, name))
			switch {
			case !p.files[name]:
			case left:
				p.note("an index without a log, which a deletion or a compaction had taken; the next start removes it")
			case begun:
				p.note("an index without a log, of a segment that was being made; the next start removes it")
			default:
				p.problem("an index without a log")
			}
		}
	}
	return nil
}

// begun tells whether a segment's log may not have been made yet when its process
// ended (see segmentExts): it would be the last one, nothing says that the
// partition went beyond its beginning, and its indexes hold nothing.
func (p *partitionCheck) begun(base int64) (bool, error) {
	if !p.restarts() || len(p.bases) == 0 || base <= p.bases[len(p.bases)-1] {
		return false, nil
	}
	for _, name := range offsetCheckpoints {
		if p.points[name][p.tp] > cluster.Offset(base) {
			return false, nil
		}
	}
	for _, ext := range segmentExts {
		if name := fileName(base, ext); p.files[name] {
			if empty, err := p.holdsNothing(name); !empty || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// holdsNothing tells whether a file has no byte but zeros.
func (p *partitionCheck) holdsNothing(name string) (bool, error) {
	f, err := p.fs.Open(p.path(name))
	if err != nil {
		return false, err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := f.ReadAt(buf, at)
		if slices.ContainsFunc(buf[:n], func(b byte) bool { return b != 0 }) {
			return false, nil
		}
		if at += int64(n); err == io.EOF {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
}

// restarts tells whether a start loads the partition, and so tidies it up.
func (p *partitionCheck) restarts() bool {
	return (p.kind == dirCurrent || p.kind == dirMoving) && p.tp.Topic != metadataTopic
}

// leftBehind tells whether a segment's log was taken on purpose, before a crash
// kept its indexes from going the same way: it is renamed, or a compacted segment
// that covers it is complete.
func (p *partitionCheck) leftBehind(base int64) (bool, error) {
	if !p.restarts() {
		return false, nil
	}
	if p.files[fileName(base, extLog)+suffixDeleted] {
		return true, nil
	}
	for name := range p.files {
		from, ext, ok := parseFileName(name)
		if !ok || ext != extLog+suffixSwap || from > base {
			continue
		}
		end, err := p.endOfSwap(name)
		if err != nil || int64(end) > base {
			return err == nil, err
		}
	}
	return false, nil
}

// endOfSwap is the offset after the last batch of a segment that has not got its
// name yet.
func (p *partitionCheck) endOfSwap(name string) (end cluster.Offset, err error) {
	f, err := p.fs.Open(p.path(name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r, err := newInspector(f)
	if err != nil {
		return 0, err
	}
	for {
		e, err := r.next()
		if err == io.EOF || isLogEnd(err) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		end = e.Last + 1
	}
}

func (p *partitionCheck) epochCheckpoint() error {
	p.file(filepath.Join(p.name, leaderEpochCheckpoint))
	if !p.files[leaderEpochCheckpoint] {
		return nil
	}
	data, err := vfs.ReadFile(p.fs, p.path(leaderEpochCheckpoint), maxSmallFile)
	if err != nil {
		return err
	}
	p.epochs, err = epochs.Parse(data)
	p.known = err == nil
	return p.unreadable(err)
}

// trusted reports whether the files beside segment i's log must agree with it:
// the next start will not rebuild them.
func (p *partitionCheck) trusted(i int) bool {
	if p.clean {
		return true
	}
	point, ok := p.points[recoveryPointCheckpoint][p.tp]
	return ok && i+1 < len(p.bases) && cluster.Offset(p.bases[i+1]) <= point
}

// startState takes over what is known of producers whose first records are gone.
func (p *partitionCheck) startState() error {
	base := p.bases[0]
	if base == 0 || !slices.Contains(p.snapshots, base) {
		return nil
	}
	name := fileName(base, extSnapshot)
	p.file(filepath.Join(p.name, name))
	data, err := vfs.ReadFile(p.fs, p.path(name), maxSmallFile)
	if err != nil {
		return err
	}
	return p.unreadable(p.state.Load(data, cluster.Offset(base), 0, math.MaxInt64))
}

func (p *partitionCheck) segment(i int, base int64) error {
	p.compacted = p.compacted || cluster.Offset(base) > p.leo
	if err := p.snapshotAt(base, p.trusted(i)); err != nil {
		return err
	}
	name := fileName(base, extLog)
	f, err := p.fs.Open(p.path(name))
	if err != nil {
		return err
	}
	defer f.Close()
	s := &segmentCheck{partitionCheck: p, base: base, log: filepath.Join(p.name, name), lastOff: -1, largest: noTimes}
	if p.trusted(i) {
		if err := s.openIndexes(); err != nil {
			return err
		}
	}
	p.file(s.log)
	if i > 0 && cluster.Offset(base) < p.leo {
		p.problem("the segment begins at offset %d, the one before ends at %d", base, p.leo)
	}
	p.leo = max(p.leo, cluster.Offset(base))
	if err := s.scan(f, i == len(p.bases)-1); err != nil {
		return err
	}
	s.finish()
	return nil
}

// segmentCheck walks one segment's log and, beside it, its indexes.
type segmentCheck struct {
	*partitionCheck
	base int64
	log  string

	offsets, times []byte // index entries that are still to come; nil for not to be checked
	lastOff        int64  // in the offset index so far; -1 none
	largest        largestTimes
	txns           []abortedEntry
	checkTxns      bool
	markers        map[cluster.Offset]cluster.ProducerID // aborts in this segment
	aborted        []producers.Completed
	found          []Problem // about the indexes, printed after those of the log
}

func (s *segmentCheck) scan(f vfs.File, last bool) error {
	r, err := newInspector(f)
	if err != nil {
		return err
	}
	for {
		e, err := r.next()
		switch {
		case err == io.EOF:
			return nil
		case isLogEnd(err) && last && !s.clean:
			s.problem("position %d: %d bytes after the last valid batch (%v); the next start cuts them off", r.pos, r.size-r.pos, err)
			return nil
		case isLogEnd(err):
			s.problem("position %d: %v; %d bytes cannot be read", r.pos, err, r.size-r.pos)
			return nil
		case err != nil:
			return err
		}
		crcErr := e.check()
		if crcErr != nil {
			s.problem("position %d, offsets %d-%d: %v", e.Pos, e.First, e.Last, crcErr)
		}
		s.place(e)
		if crcErr == nil && e.Magic >= record.MagicV2 {
			s.follow(e, record.Batch(e.Data))
		}
	}
}

// place checks where an entry stands, and the index entries that point to it.
func (s *segmentCheck) place(e inspected) {
	switch {
	case e.First < s.leo:
		s.problem("position %d: offset %d after %d", e.Pos, e.First, s.leo-1)
	case int64(e.Last)-s.base > math.MaxInt32:
		s.problem("position %d: offset %d is too far from the segment's base for its indexes", e.Pos, e.Last)
	}
	s.compacted = s.compacted || e.First > s.leo && e.Magic >= record.MagicV2
	s.leo = max(s.leo, e.Last+1)
	s.largest.saw(&e)
	s.indexEntries(e)
}

// follow takes in what a valid batch says of epochs and producers.
func (s *segmentCheck) follow(e inspected, b record.Batch) {
	s.leaderEpoch(e, b.LeaderEpoch())
	p, ok, err := producers.From(b)
	if err != nil {
		s.problem("position %d: %v", e.Pos, err)
		return
	}
	if !ok {
		return
	}
	if p.Marker == producers.Abort && s.checkTxns {
		s.markers[p.First] = p.ProducerID
	}
	if done, ok := s.state.Apply(&p); ok {
		s.state.Complete(done)
		s.state.HighWatermarkMoved(done.Last + 1)
		if done.Aborted {
			s.aborted = append(s.aborted, done)
		}
	}
}

// leaderEpoch checks that epochs rise and that the checkpoint knows them.
func (s *segmentCheck) leaderEpoch(e inspected, epoch cluster.LeaderEpoch) {
	if epoch < 0 {
		return
	}
	if epoch < s.epoch {
		s.problem("position %d: leader epoch %d after %d", e.Pos, epoch, s.epoch)
	}
	news := epoch != s.epoch
	s.epoch = epoch
	at, ok := s.epochs.EpochAt(e.First)
	if !ok && s.epochs.Len() > 0 {
		return // below the log's start, where epochs are forgotten before records are, or a start that a crash undid
	}
	if s.known && news && at != epoch {
		s.problem("position %d: leader epoch %d at offset %d, %s says %d", e.Pos, epoch, e.First, leaderEpochCheckpoint, at)
	}
}

// endOfEpochs checks what lies behind the last batch.
func (p *partitionCheck) endOfEpochs() {
	p.file(filepath.Join(p.name, leaderEpochCheckpoint))
	if !p.files[leaderEpochCheckpoint] && p.epoch >= 0 {
		p.problem("missing, but the batches have leader epochs up to %d", p.epoch)
	}
	if epoch, start, ok := p.epochs.Latest(); ok && start > p.leo && p.clean {
		p.problem("epoch %d begins at offset %d, beyond the end of the log, %d", epoch, start, p.leo)
	}
}

// snapshotAt compares the snapshot at an offset, if there is one, with what the
// batches before it say of the same producers. A snapshot may know fewer, as
// producers expire, and more, as records are deleted.
func (p *partitionCheck) snapshotAt(off int64, trusted bool) error {
	if !trusted || off == p.bases[0] || !slices.Contains(p.snapshots, off) {
		return nil
	}
	name := fileName(off, extSnapshot)
	p.file(filepath.Join(p.name, name))
	data, err := vfs.ReadFile(p.fs, p.path(name), maxSmallFile)
	if err != nil {
		return err
	}
	entries, err := producers.DecodeSnapshot(data)
	if err != nil {
		return p.unreadable(err)
	}
	for _, e := range entries {
		p.compareProducer(e, off)
	}
	return nil
}

func (p *partitionCheck) compareProducer(e producers.SnapshotEntry, off int64) {
	if e.LastOffset >= cluster.Offset(off) || e.TxnFirst >= cluster.Offset(off) {
		p.problem("producer %d: offset %d is not below the snapshot's", e.ProducerID, max(e.LastOffset, e.TxnFirst))
		return
	}
	have, ok := p.state.Last(e.ProducerID)
	if !ok || p.compacted {
		return
	}
	gone := have.LastOffset < p.start() && e.LastOffset < p.start() // its data, though not its last marker
	if have.Epoch != e.Epoch || !gone && (have.LastOffset != e.LastOffset || have.LastSequence != e.LastSequence) {
		p.problem("producer %d: epoch %d, sequence %d at offset %d, but the log has epoch %d, sequence %d at offset %d",
			e.ProducerID, e.Epoch, e.LastSequence, e.LastOffset, have.Epoch, have.LastSequence, have.LastOffset)
	}
	if have.TxnFirst != e.TxnFirst && !p.below(have.TxnFirst) && !p.below(e.TxnFirst) {
		p.problem("producer %d: its transaction begins at %d, but the log has %d", e.ProducerID, e.TxnFirst, have.TxnFirst)
	}
}

// lastSnapshots looks at those behind the last segment's base: after a clean stop
// one may stand at the end of the log, and none beyond.
func (p *partitionCheck) lastSnapshots() error {
	if !p.clean {
		return nil
	}
	for _, off := range p.snapshots {
		if off <= p.bases[len(p.bases)-1] {
			continue
		}
		if cluster.Offset(off) > p.leo {
			p.file(filepath.Join(p.name, fileName(off, extSnapshot)))
			p.problem("beyond the end of the log, %d", p.leo)
		} else if cluster.Offset(off) == p.leo {
			if err := p.snapshotAt(off, true); err != nil {
				return err
			}
		}
	}
	return nil
}
