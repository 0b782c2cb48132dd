package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kbroker/kbroker/bench/groups"
	"github.com/kbroker/kbroker/bench/result"
)

// The row about a coordinator that loads.
const (
	loadingRow        = "load"
	loadingGroups     = 2000
	loadingPartitions = 100 // of the topic, for each group
	loadingPerCommit  = 4
	loadingBytes      = 1e9
	offsetsPartitions = 50 // offsets.topic.num.partitions
	offsetsSegment    = 100 << 20
	loadingPartition  = 7 // of the offsets topic
)

func (c *groupRuns) loadingRows() []Row {
	return []Row{newRow(loadingRow, fmt.Sprintf("a coordinator partition of %.2f GB, %d keys, %d offsets in a batch; restart, no cleaner", loadingBytes*c.o.Scale/1e9, loadingGroups*loadingPartitions, loadingPerCommit),
		[]metric{
			{name: "leadership to the first offset", unit: "s", digits: 2, less: true, goal: 1. / 3},
			{name: "start to the first offset", unit: "s", digits: 2, less: true},
			{name: "broker CPU from the start to the first offset", unit: "s", digits: 2, less: true},
			{name: "loading by its own log", unit: "s", digits: 2, less: true},
			{name: "resident, loaded", unit: "MB", less: true},
		}, c.o.Subjects)}
}

// measureLoading writes the log of commits once and gives each broker a copy.
// The first start, which makes the indexes, is not measured; no broker but the
// one that is measured runs meanwhile.
func (c *groupRuns) measureLoading(ctx context.Context, rows map[string]*Row) error {
	log := groups.Log{Topic: groupTopic, Groups: groups.NamesIn(loadingPartition, offsetsPartitions, "loading", loadingGroups), Partitions: loadingPartitions,
		PerCommit: loadingPerCommit, Bytes: int64(loadingBytes * c.o.Scale), SegmentBytes: offsetsSegment, NowMs: time.Now().UnixMilli()}
	template := filepath.Join(c.dir, c.next("commits"))
	if err := os.MkdirAll(template, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(template)
	written, err := log.Write(template)
	if err != nil {
		return err
	}
	c.o.Logf("%s: a log of %.3f GB, %d records", loadingRow, float64(written.Bytes)/1e9, written.Records)
	byName := map[string]*subject{}
	defer func() {
		for _, s := range byName {
			s.end()
		}
	}()
	for _, name := range c.o.Subjects {
		s, err := c.groupSubject(name, 0, "log.cleaner.enable=false\n")
		if err != nil {
			return err
		}
		byName[name] = s
		if err := c.prepareLoading(ctx, s, template, log.Groups[0]); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, s.proc.tail())
		}
		if _, err := c.loading(ctx, s, log.Groups[0], written); err != nil {
			return fmt.Errorf("%s: first start: %w\n%s", name, err, s.proc.tail())
		}
	}
	for _, name := range turns(c.o.Subjects, c.o.Rounds) {
		s := byName[name]
		if err := c.touch(ctx, 2); err != nil {
			return err
		}
		values, err := c.loading(ctx, s, log.Groups[0], written)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, s.proc.tail())
		}
		for i, v := range values {
			rows[loadingRow].note(i, name, v)
		}
		c.o.Logf("%s: %s: %.2f", loadingRow, name, values)
	}
	return nil
}

// prepareLoading has the broker make its offsets topic, ends it, and puts the
// log into its place.
func (c *groupRuns) prepareLoading(ctx context.Context, s *subject, template, group string) error {
	if s.name == Kafka {
		if err := c.logLoading(s); err != nil {
			return err
		}
	}
	if err := c.startGroups(ctx, s); err != nil {
		return err
	}
	if err := groups.Ready(ctx, s.addr, group); err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	dir := filepath.Join(s.data(), fmt.Sprintf("%s-%d", groups.OffsetsTopic, loadingPartition))
	old, err := filepath.Glob(filepath.Join(dir, "0*"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	segments, err := filepath.Glob(filepath.Join(template, "*.log"))
	if err != nil {
		return err
	}
	for _, name := range segments {
		if err := copyFile(filepath.Join(dir, filepath.Base(name)), name); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// loading starts the broker, measures until it answers with offsets, checks all
// of them, and ends it. The values are those of the row's metrics.
func (c *groupRuns) loading(ctx context.Context, s *subject, group string, written groups.Written) (values [5]float64, err error) {
	began := time.Now()
	if s.proc, err = startProc(filepath.Join(s.dir, "log"), pinned(brokerCore, s.argv...)...); err != nil {
		return values, err
	}
	loaded, err := groups.AwaitLoaded(ctx, s.addr, group, groupTopic, s.proc.done)
	if err != nil {
		return values, err
	}
	cpu, err := result.CPU(s.proc.pid())
	if err != nil {
		return values, err
	}
	rss, err := s.memory()
	if err != nil {
		return values, err
	}
	if err := groups.Verify(ctx, s.addr, written.Last); err != nil {
		return values, err
	}
	log, err := os.ReadFile(s.proc.log)
	if err != nil {
		return values, err
	}
	own, err := loadedBy(string(log), loadingPartition)
	if err != nil {
		return values, err
	}
	values = [5]float64{loaded.Done.Sub(loaded.Leading).Seconds(), loaded.Done.Sub(began).Seconds(), cpu.Seconds(), own.Seconds(), float64(rss) / 1e6}
	return values, s.stop()
}

// logLoading has Apache Kafka log how long it loads.
func (c *groupRuns) logLoading(s *subject) error {
	text, err := os.ReadFile(filepath.Join(c.o.Root, "integration", "java", "log4j.properties"))
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "log4j.properties")
	for i, arg := range s.argv {
		if strings.HasPrefix(arg, "-Dlog4j.configuration=") {
			s.argv[i] = "-Dlog4j.configuration=file:" + file
		}
	}
	return os.WriteFile(file, append(text, "\nlog4j.logger.kafka.coordinator.group.GroupMetadataManager=INFO\n"...), 0o644)
}

// What the two brokers log when they have loaded a partition: both the
// milliseconds since they were told to lead it.
var (
	kafkaLoaded   = regexp.MustCompile(`Finished loading offsets and group metadata from ` + groups.OffsetsTopic + `-(\d+) in (\d+) milliseconds`)
	kbrokerLoaded = regexp.MustCompile(`"partition":"` + groups.OffsetsTopic + `-(\d+)".*"since_election":([0-9.e-]+)`)
)

// loadedBy finds in a broker's log how long it has loaded a partition, the last
// time that it did.
func loadedBy(log string, partition int) (took time.Duration, err error) {
	err = fmt.Errorf("the log does not say that %s-%d was loaded", groups.OffsetsTopic, partition)
	for line := range strings.Lines(log) {
		m := kafkaLoaded.FindStringSubmatch(line)
		if m == nil {
			m = kbrokerLoaded.FindStringSubmatch(line)
		}
		if m == nil || m[1] != strconv.Itoa(partition) {
			continue
		}
		ms, perr := strconv.ParseFloat(m[2], 64)
		took, err = time.Duration(ms*float64(time.Millisecond)), perr
	}
	return took, err
}
