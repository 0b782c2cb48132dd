package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// Problem is something in a data directory that should not be.
type Problem struct {
	Path string // relative to the directory
	Text string
	// Note tells of what an interrupted change of segments has left, nothing is
	// lost by, and the next start is sure to put right.
	Note bool
}

func (p Problem) String() string {
	if p.Note {
		return p.Path + ": note: " + p.Text
	}
	return p.Path + ": " + p.Text
}

// maxProblemsPerFile keeps a file that is wrong throughout from hiding the rest.
const maxProblemsPerFile = 10

// CheckDir reads a whole data directory (one of log.dirs) and returns what does
// not fit together, in the order of the names: identity, names of partitions,
// segments that follow each other, checksums, rising offsets and leader epochs,
// index entries that agree with the log, transaction indexes and producer
// snapshots that agree with the batches, the leader epoch checkpoint, checkpoints
// within their logs, topic ids. It changes nothing and shares the reading of logs
// with nobody. A directory in use is refused with ErrDirLocked, as its files need
// not agree at every moment.
//
// After a stop that was not clean, what the next start rebuilds anyway is not
// held against the directory: indexes, snapshots and transaction indexes from the
// recovery point on. Files that tell of a replacement or a deletion of segments
// which the next start completes are notes.
func CheckDir(f vfs.FS, dir string) ([]Problem, error) {
	info, err := f.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.Dir {
		return nil, &fs.PathError{Op: "check", Path: dir, Err: errors.New("not a directory")}
	}
	locked, err := f.Locked(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	if locked {
		return nil, fmt.Errorf("%s: %w; stop the broker before the check", dir, ErrDirLocked)
	}
	c := &checker{fs: f, dir: dir, points: map[string]map[cluster.TopicPartition]cluster.Offset{},
		ids: map[string]cluster.TopicID{}, owners: map[cluster.TopicID]string{}, shared: map[[2]string]bool{}}
	if err := c.run(); err != nil {
		return nil, err
	}
	return c.problems, nil
}

// checker collects problems. Its methods return errors only for what is the
// disk's fault.
type checker struct {
	fs       vfs.FS
	dir      string
	clean    bool // the last stop was
	points   map[string]map[cluster.TopicPartition]cluster.Offset
	ids      map[string]cluster.TopicID // by topic
	owners   map[cluster.TopicID]string // the topic that was first to have it
	shared   map[[2]string]bool         // pairs of topics of one id that are told
	indexes  indexReader
	problems []Problem
	in       string // file that problems are about
	perFile  int
}

func (c *checker) file(rel string) { c.in, c.perFile = rel, 0 }

func (c *checker) problem(format string, args ...any) { c.add(false, format, args...) }

func (c *checker) note(format string, args ...any) { c.add(true, format, args...) }

func (c *checker) add(note bool, format string, args ...any) {
	c.perFile++
	switch {
	case c.perFile > maxProblemsPerFile+1:
	case c.perFile > maxProblemsPerFile:
		c.problems = append(c.problems, Problem{Path: c.in, Text: "there are more problems in this file"})
	default:
		c.problems = append(c.problems, Problem{Path: c.in, Text: fmt.Sprintf(format, args...), Note: note})
	}
}

// unreadable turns an error about a file's content into a problem, and leaves
// those of the disk.
func (c *checker) unreadable(err error) error {
	var disk *fs.PathError
	if err == nil || errors.As(err, &disk) {
		return err
	}
	c.problem("%v", err)
	return nil
}

func (c *checker) run() error {
	if err := c.identity(); err != nil {
		return err
	}
	var err error
	c.file(cleanShutdownFile)
	if c.clean, _, err = readCleanShutdown(c.fs, c.dir); err != nil {
		return err
	}
	for _, name := range offsetCheckpoints {
		c.file(name)
		data, err := vfs.ReadFile(c.fs, filepath.Join(c.dir, name), maxSmallFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if c.points[name], err = parseOffsetCheckpoint(data); err != nil {
			c.problem("%v", err)
		}
		c.checkCheckpoint(c.points[name])
	}
	list, err := c.fs.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Dir {
			if err := c.partition(e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) identity() error {
	c.file(metaPropertiesFile)
	data, err := vfs.ReadFile(c.fs, filepath.Join(c.dir, metaPropertiesFile), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		c.problem("missing: the directory belongs to no broker")
		return nil
	}
	if err != nil {
		return err
	}
	_, err = parseMetaProperties(data)
	return c.unreadable(err)
}

func (c *checker) checkCheckpoint(m map[cluster.TopicPartition]cluster.Offset) {
	for _, tp := range sortedPartitions(m) {
		if m[tp] < 0 {
			c.problem("%s: offset %d is negative", tp, m[tp])
		}
		if err := cluster.ValidateTopicName(tp.Topic); err != nil {
			c.problem("%s: %v", tp, err)
		}
	}
}

func (c *checker) partition(name string) error {
	c.file(name)
	if name == remoteIndexDir {
		return nil
	}
	tp, kind, err := parseDirName(name)
	if err != nil {
		c.problem("not the directory of a partition: Apache Kafka takes the whole data directory offline for it")
		return nil
	}
	if kind == dirDeleted {
		return nil
	}
	if err := cluster.ValidateTopicName(tp.Topic); err != nil && kind == dirCurrent {
		c.problem("%v", err)
	}
	p := &partitionCheck{checker: c, name: name, tp: tp, kind: kind}
	return p.run()
}

// Strays are the directories of partitions in a data directory that known does
// not know, in the order of their names.
func Strays(f vfs.FS, dir string, known func(topic string, partition int32) bool) ([]string, error) {
	list, err := f.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var strays []string
	for _, e := range list {
		tp, kind, err := parseDirName(e.Name)
		if e.Dir && err == nil && (kind == dirCurrent || kind == dirMoving) && !known(tp.Topic, tp.Partition) {
			strays = append(strays, e.Name)
		}
	}
	return strays, nil
}

// topicID compares partition.metadata with the other partitions of the topic.
func (p *partitionCheck) topicID() error {
	p.file(filepath.Join(p.name, partitionMetadataFile))
	data, err := vfs.ReadFile(p.fs, p.path(partitionMetadataFile), 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // before 2.8 there was none
	}
	if err != nil {
		return err
	}
	id, err := parsePartitionMetadata(data)
	if err != nil {
		return p.unreadable(err)
	}
	if p.kind != dirCurrent {
		return nil
	}
	p.compareTopicID(id)
	return nil
}

// compareTopicID tells of a partition that differs from its topic, and once of
// two topics with one id.
func (p *partitionCheck) compareTopicID(id cluster.TopicID) {
	topic := p.tp.Topic
	first, known := p.ids[topic]
	owner, taken := p.owners[id]
	pair := [2]string{owner, topic}
	switch {
	case known && first != id:
		p.problem("topic id %s, but a partition of %s has %s", id, topic, first)
	case taken && owner != topic && !p.shared[pair]:
		p.problem("topic id %s, but a partition of %s has %s", id, owner, id)
		p.shared[pair] = true
	}
	if !known {
		p.ids[topic] = id
	}
	if !taken {
		p.owners[id] = topic
	}
}

// checkpoints compares what the root's checkpoint files say with the log.
func (p *partitionCheck) checkpoints() {
	if p.kind != dirCurrent {
		return
	}
	for _, name := range offsetCheckpoints {
		off, ok := p.points[name][p.tp]
		if ok && off > p.leo {
			p.file(name)
			p.problem("%s: offset %d is beyond the end of the log, %d", p.tp, off, p.leo)
		}
	}
}
