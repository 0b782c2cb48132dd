package journal

import (
	"bytes"
	"strings"
	"sync"
)

// Journal keeps what is written to it. The zero value is empty.
type Journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer; it does not fail.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// String is all of it.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// Count counts the lines that have all parts.
func (j *Journal) Count(parts ...string) (n int) {
	for line := range strings.Lines(j.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			n++
		}
	}
	return n
}

// Has reports whether a line has all parts.
func (j *Journal) Has(parts ...string) bool { return j.Count(parts...) > 0 }
