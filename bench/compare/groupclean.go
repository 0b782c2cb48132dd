package compare

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The rows about the log cleaner, which bench/clean measures.
const (
	cleanRow    = "clean"
	cleanMiB    = 512
	cleanRounds = 3 // in each turn, after one to warm up
	// cleanProps have the cleaner look often whether there is something to do.
	cleanProps = "log.cleaner.backoff.ms=100\n"
)

// cleanCodecs have a row each: cleanRow, and cleanRow-CODEC.
var cleanCodecs = []string{"none", "gzip", "lz4", "zstd"}

func cleanRowOf(codec string) string {
	if codec == "none" {
		return cleanRow
	}
	return cleanRow + "-" + codec
}

// cleanRows ask less of what is compressed, which is mostly the codecs' own work:
// no more CPU than Kafka. Sizes are those of the segments, compressed as they are.
func (c *groupRuns) cleanRows() (rows []Row) {
	mib := c.scaled(cleanMiB, 192)
	for _, codec := range cleanCodecs {
		text, goal := fmt.Sprintf("compaction of %d MiB, values of 200 bytes, 500,000 keys at random", mib), 3.
		if codec != "none" {
			text, goal = text+", "+codec, 1
		}
		rows = append(rows, newRow(cleanRowOf(codec), text, []metric{
			{name: "compacted per second of broker CPU", unit: "MiB/s", goal: goal},
			{name: "compacted per second", unit: "MiB/s"},
		}, c.o.Subjects))
	}
	return rows
}

func (c *groupRuns) measureClean(ctx context.Context, rows map[string]*Row) error {
	bin, err := c.build(ctx, "bench/clean")
	if err != nil {
		return err
	}
	for _, codec := range cleanCodecs {
		if row := rows[cleanRowOf(codec)]; row != nil {
			err = errors.Join(err, c.measureCodec(ctx, bin, codec, row))
		}
	}
	return err
}

// measureCodec has a fresh broker in each turn.
func (c *groupRuns) measureCodec(ctx context.Context, bin, codec string, row *Row) error {
	return c.eachTurn(ctx, 0, cleanProps, func(s *subject) error {
		if err := c.touch(ctx, 2); err != nil {
			return err
		}
		out, err := run(ctx, strconv.Itoa(clientCore), bin, "--bootstrap", s.addr, "--pid", strconv.Itoa(s.proc.pid()), "--dir", s.data(),
			"--codec", codec, "--mb", strconv.Itoa(c.scaled(cleanMiB, 192)), "--rounds", strconv.Itoa(1+c.scaled(cleanRounds, 1)))
		if err != nil {
			return err
		}
		done, err := cleaned(string(out))
		if err != nil {
			return err
		}
		for _, r := range done[1:] {
			row.note(0, s.name, r.perCPU)
			row.note(1, s.name, r.perSecond)
		}
		c.o.Logf("%s: %s: %+v", cleanRowOf(codec), s.name, done)
		return nil
	})
}

// cleaning is what bench/clean tells of one round, in MiB.
type cleaning struct{ perSecond, perCPU float64 }

// cleaned reads the table that bench/clean prints, by the names of its columns.
func cleaned(out string) (rounds []cleaning, err error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	// A column may be called "wall s"; the last two are of one word, and rows have
	// no spaces in them.
	head := strings.Fields(lines[0])
	if len(head) < 2 || head[len(head)-2] != "MiB/s" || head[len(head)-1] != "MiB/cpu-s" {
		return nil, fmt.Errorf("bench/clean: the columns are %q", lines[0])
	}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) < 2 {
			return nil, fmt.Errorf("bench/clean: %q", line)
		}
		perSecond, err1 := strconv.ParseFloat(f[len(f)-2], 64)
		perCPU, err2 := strconv.ParseFloat(f[len(f)-1], 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("bench/clean: %q: %w", line, err)
		}
		rounds = append(rounds, cleaning{perSecond, perCPU})
	}
	if len(rounds) < 2 {
		return nil, fmt.Errorf("bench/clean: %d rounds", len(rounds))
	}
	return rounds, nil
}
