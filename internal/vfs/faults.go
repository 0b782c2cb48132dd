package vfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrCrashed is what a file system answers after FailFrom's point.
var ErrCrashed = errors.New("simulated crash")

// Rule makes operations fail.
type Rule struct {
	Kinds []Kind // none: all that mutate
	Glob  string // of the base name; "" for all
	Dir   string // a prefix of the path; "" for all
	Skip  int    // let so many matching operations through first
	Times int    // then fail so many; 0: for ever
	Short int    // a failing write writes so many bytes first
	Err   error
}

// Faults fails operations by rules and counts them. Its Hook goes into
// WithHook. It is safe for concurrent use.
type Faults struct {
	mu        sync.Mutex
	rules     []*armed
	mutations int
	failFrom  int // 0: never
}

type armed struct {
	Rule
	seen, failed int
}

// Add arms a rule; the first one that matches and is due decides.
func (f *Faults) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &armed{Rule: r})
}

// Clear disarms everything; the count goes on.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.failFrom = nil, 0
}

// FailFrom makes the k-th mutation from now (1 is the next one) and all that
// follow fail with ErrCrashed: with CrashClone after it, a crash at each
// operation in turn can be tried.
func (f *Faults) FailFrom(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failFrom = f.mutations + k
}

// Mutations is how many mutating operations were asked for so far.
func (f *Faults) Mutations() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mutations
}

// Hook is the vfs.Hook.
func (f *Faults) Hook(op Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op.Kind.Mutates() {
		f.mutations++
	}
	if f.failFrom > 0 && f.mutations >= f.failFrom && op.Kind != OpClose {
		return ErrCrashed
	}
	for _, r := range f.rules {
		if !r.matches(op) {
			continue
		}
		r.seen++
		if r.seen <= r.Skip || (r.Times > 0 && r.failed >= r.Times) {
			continue
		}
		r.failed++
		if op.Kind == OpWrite && r.Short > 0 {
			return &ShortWrite{N: r.Short, Err: r.Err}
		}
		return r.Err
	}
	return nil
}

func (r *armed) matches(op Op) bool {
	if len(r.Kinds) == 0 {
		if !op.Kind.Mutates() {
			return false
		}
	} else if !slices.Contains(r.Kinds, op.Kind) {
		return false
	}
	if r.Dir != "" && !strings.HasPrefix(op.Path, r.Dir) {
		return false
	}
	if r.Glob == "" {
		return true
	}
	ok, err := filepath.Match(r.Glob, filepath.Base(op.Path))
	return ok && err == nil
}

// Trace writes down what is done to a file system, one line an operation, for
// tests that print the order of writes, fsyncs and renames. It is safe for
// concurrent use.
type Trace struct {
	mu    sync.Mutex
	root  string
	lines []string
}

// NewTrace makes a trace that prints paths relative to root and leaves out
// what does not mutate.
func NewTrace(root string) *Trace { return &Trace{root: filepath.Clean(root)} }

// Hook is the vfs.Hook; it never fails.
func (t *Trace) Hook(op Op) error {
	if !op.Kind.Mutates() {
		return nil
	}
	line := string(op.Kind) + " " + t.rel(op.Path)
	switch op.Kind {
	case OpRename:
		line += " -> " + t.rel(op.To)
	case OpWrite:
		line += fmt.Sprintf(" %d+%d", op.Offset, op.Len)
	case OpTruncate:
		line += fmt.Sprintf(" %d", op.Offset)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	return nil
}

func (t *Trace) rel(path string) string {
	rel, err := filepath.Rel(t.root, path)
	if err != nil {
		return path
	}
	return rel
}

// Take returns the lines since the last Take, each ended by a newline.
func (t *Trace) Take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return ""
	}
	s := strings.Join(t.lines, "\n") + "\n"
	t.lines = nil
	return s
}

// Hooks runs several hooks in order; the first error wins.
func Hooks(hooks ...Hook) Hook {
	return func(op Op) error {
		for _, h := range hooks {
			if err := h(op); err != nil {
				return err
			}
		}
		return nil
	}
}
