package epochs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
)

// ErrCorrupt marks a checkpoint that cannot be read; the history is then
// rebuilt from the batches.
var ErrCorrupt = errors.New("corrupt leader epoch checkpoint")

const version = 0

// Encode is the leader-epoch-checkpoint file: "0", the number of entries, then
// "epoch start" on a line each.
func (c Cache) Encode() []byte {
	b := make([]byte, 0, 8+16*len(c.entries))
	b = append(strconv.AppendInt(b, version, 10), '\n')
	b = append(strconv.AppendInt(b, int64(len(c.entries)), 10), '\n')
	for _, e := range c.entries {
		b = append(strconv.AppendInt(b, int64(e.Epoch), 10), ' ')
		b = append(strconv.AppendInt(b, int64(e.Start), 10), '\n')
	}
	return b
}

// Parse reads a leader-epoch-checkpoint file. A file without an entry count, as
// a fresh one is, is an empty history. Everything else that is not exactly what
// Encode writes (but for white space) is ErrCorrupt, naming the line: entries
// out of order too, since a history that cannot be is better rebuilt than
// guessed at.
func Parse(data []byte) (Cache, error) {
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if len(data) == 0 {
		return Cache{}, nil
	}
	v, err := parseInt(lines[0], 32)
	if err != nil {
		return Cache{}, fmt.Errorf("line 1: %w: %v", ErrCorrupt, err)
	}
	if v != version {
		return Cache{}, fmt.Errorf("line 1: %w: version %d, want %d", ErrCorrupt, v, version)
	}
	if len(lines) == 1 {
		return Cache{}, nil
	}
	count, err := parseInt(lines[1], 32)
	if err != nil {
		return Cache{}, fmt.Errorf("line 2: %w: %v", ErrCorrupt, err)
	}
	lines = lines[2:]
	if count != int64(len(lines)) {
		return Cache{}, fmt.Errorf("line 2: %w: %d entries announced, %d found", ErrCorrupt, count, len(lines))
	}
	c := Cache{make([]Entry, len(lines))}
	for i, line := range lines {
		if c.entries[i], err = parseEntry(line); err == nil {
			err = Cache{c.entries[max(0, i-1) : i+1]}.Check()
		}
		if err != nil {
			return Cache{}, fmt.Errorf("line %d: %w: %v", i+3, ErrCorrupt, err)
		}
	}
	return c, nil
}

func parseEntry(line []byte) (Entry, error) {
	f := bytes.Fields(line)
	if len(f) != 2 {
		return Entry{}, fmt.Errorf("%.80q: want an epoch and an offset", line)
	}
	epoch, err := parseInt(f[0], 32)
	if err != nil {
		return Entry{}, err
	}
	start, err := parseInt(f[1], 64)
	return Entry{cluster.LeaderEpoch(epoch), cluster.Offset(start)}, err
}

func parseInt(b []byte, bits int) (int64, error) {
	b = bytes.TrimSpace(b)
	n, err := strconv.ParseInt(string(b[:min(len(b), 32)]), 10, bits)
	if err != nil || len(b) > 32 {
		return 0, fmt.Errorf("%.40q is not a number of %d bits", b, bits)
	}
	return n, nil
}
