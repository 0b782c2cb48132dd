package logstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore/epochs"
	"github.com/kbroker/kbroker/logstore/producers"
)

// ErrDamaged tells that a file was printed as far as it can be read, and that
// something in it is wrong. The output says where.
var ErrDamaged = errors.New("damaged")

// ErrUnknownFile marks a name that is none of a data directory's files.
var ErrUnknownFile = errors.New("not a file of a data directory")

// Dump prints what a file of a data directory holds, in the words of Apache
// Kafka's own dump tool where it knows the file: a segment's .log (batches, and
// with deep their records), .index, .timeindex, .txnindex and .snapshot, the
// checkpoints, meta.properties, partition.metadata and the mark of a clean
// shutdown. Checksums are verified, and index entries looked up in the log beside
// them. Lines that begin with "PROBLEM" say what is wrong; the error is
// ErrDamaged then.
func Dump(w io.Writer, f vfs.FS, path string, deep bool) error {
	info, err := f.Stat(path)
	if err != nil {
		return err
	}
	if info.Dir {
		return fmt.Errorf("%s is a directory: %w", path, ErrUnknownFile)
	}
	d := &dumper{w: bufio.NewWriter(w), fs: f, path: path, deep: deep}
	d.printf("Dumping %s\n", path)
	err = d.dump()
	if flushErr := d.w.Flush(); err == nil {
		err = flushErr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if d.problems > 0 {
		return fmt.Errorf("%s: %w: problems found: %d", path, ErrDamaged, d.problems)
	}
	return nil
}

type dumper struct {
	w        *bufio.Writer
	fs       vfs.FS
	path     string
	deep     bool
	problems int
}

// printf writes; what goes wrong stays in the writer until Flush.
func (d *dumper) printf(format string, args ...any) { fmt.Fprintf(d.w, format, args...) }

func (d *dumper) problem(format string, args ...any) {
	d.problems++
	d.printf("PROBLEM: "+format+"\n", args...)
}

func (d *dumper) dump() error {
	name := filepath.Base(d.path)
	switch name {
	case recoveryPointCheckpoint, logStartCheckpoint, highWatermarkCheckpoint, cleanerCheckpoint:
		return d.offsetCheckpoint()
	case leaderEpochCheckpoint:
		return d.epochCheckpoint()
	case metaPropertiesFile:
		return d.metaProperties()
	case partitionMetadataFile:
		return d.partitionMetadata()
	case cleanShutdownFile:
		return d.cleanShutdown()
	}
	base, ext, ok := parseFileName(name)
	if !ok {
		return ErrUnknownFile
	}
	for _, suffix := range []string{suffixDeleted, suffixCleaned, suffixSwap} {
		ext = strings.TrimSuffix(ext, suffix)
	}
	switch ext {
	case extLog:
		return d.log(base)
	case extIndex:
		return d.offsetIndex(base)
	case extTimeIndex:
		return d.timeIndex(base)
	case extTxnIndex:
		return d.txnIndex(base)
	case extSnapshot:
		return d.snapshot()
	}
	return ErrUnknownFile
}

func (d *dumper) read() ([]byte, error) { return vfs.ReadFile(d.fs, d.path, maxSmallFile) }

func (d *dumper) offsetCheckpoint() error {
	data, err := d.read()
	if err != nil {
		return err
	}
	m, err := parseOffsetCheckpoint(data)
	if err != nil {
		d.problem("%v", err)
	}
	for _, tp := range sortedPartitions(m) {
		d.printf("topic: %s partition: %d offset: %d\n", tp.Topic, tp.Partition, m[tp])
	}
	return nil
}

func (d *dumper) epochCheckpoint() error {
	data, err := d.read()
	if err != nil {
		return err
	}
	c, err := epochs.Parse(data)
	if err != nil {
		d.problem("%v", err)
	}
	for _, e := range c.Entries() {
		d.printf("leaderEpoch: %d startOffset: %d\n", e.Epoch, e.Start)
	}
	return nil
}

func (d *dumper) metaProperties() error {
	data, err := d.read()
	if err != nil {
		return err
	}
	m, err := parseMetaProperties(data)
	if err != nil {
		d.problem("%v", err)
		return nil
	}
	d.printf("version: 0 broker.id: %s cluster.id: %s", orNone(int64(m.BrokerID)), or(m.ClusterID, "none"))
	if m.DirectoryID != "" {
		d.printf(" directory.id: %s", m.DirectoryID)
	}
	d.printf("\n")
	return nil
}

func (d *dumper) partitionMetadata() error {
	data, err := d.read()
	if err != nil {
		return err
	}
	id, err := parsePartitionMetadata(data)
	if err != nil {
		d.problem("%v", err)
		return nil
	}
	d.printf("topicId: %s\n", id)
	return nil
}

func (d *dumper) cleanShutdown() error {
	data, err := d.read()
	if err != nil {
		return err
	}
	d.printf("clean shutdown, brokerEpoch: %s\n", orNone(int64(parseCleanShutdown(data))))
	return nil
}

func (d *dumper) txnIndex(base int64) error {
	data, err := d.read()
	if err != nil {
		return err
	}
	if n := len(data) % txnEntrySize; n != 0 {
		d.problem("%d bytes at the end are no whole entry", n)
	}
	x := &txnIndex{path: d.path, base: cluster.Offset(base), last: cluster.NoOffset}
	for ; len(data) >= txnEntrySize; data = data[txnEntrySize:] {
		e, err := parseAborted(data)
		if err != nil {
			d.problem("%v", err)
			continue
		}
		d.printf("version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n", e.ProducerID, e.First, e.Last, e.LastStable)
		if err := x.admit(e); err != nil {
			d.problem("%v", err)
		}
		x.last = max(x.last, e.Last)
	}
	return nil
}

func (d *dumper) snapshot() error {
	data, err := d.read()
	if err != nil {
		return err
	}
	entries, err := producers.DecodeSnapshot(data)
	if err != nil {
		d.problem("%v", err)
		return nil
	}
	for _, e := range entries {
		d.printf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			e.ProducerID, e.Epoch, e.CoordinatorEpoch, orNone(int64(e.TxnFirst)), e.Timestamp)
		if e.LastOffset >= 0 {
			d.printf(" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
				producers.SubSequence(e.LastSequence, e.OffsetDelta), e.LastSequence, e.LastOffset, e.OffsetDelta, e.Timestamp)
		}
		d.printf("\n")
	}
	return nil
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

func orNone(n int64) string {
	if n < 0 {
		return "none"
	}
	return strconv.FormatInt(n, 10)
}

// openBeside opens the segment's other file next to path, false when it is not
// there.
func openBeside(f vfs.FS, path string, base int64, ext string) (vfs.File, bool, error) {
	suffix := ""
	for _, s := range []string{suffixDeleted, suffixCleaned, suffixSwap} {
		if strings.HasSuffix(path, s) {
			suffix = s
		}
	}
	file, err := f.Open(filepath.Join(filepath.Dir(path), fileName(base, ext)+suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return file, err == nil, err
}
