package embedded

import (
	"maps"
	"slices"
	"sync"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
)

// ensemble is the tree with its sessions and watches: what a ZooKeeper ensemble
// is to its clients.
//
// Lock order: commitMu, queueMu (leaf), mu, then a feed's own.
type ensemble struct {
	clock clock.Clock

	// commitMu is held while a batch is prepared, made durable and applied.
	// Only its holder changes the tree, so that it may read it without mu.
	commitMu sync.Mutex
	journal  *journal // nil: nothing is durable

	queueMu sync.Mutex
	queue   []*request

	// mu guards the tree against the committer's changes, and all that follows
	// as well as the fields of stores and sessions. It is never held across a
	// system call.
	mu     sync.Mutex
	tree   *tree
	data   watches // by path: who wants to know of its data, being or not being there
	child  watches // by path: who wants to know of its children
	stores map[*Store]struct{}
	failed error // the journal is broken: every session has ended
}

type watches map[string]map[*session]struct{}

func (w watches) add(path string, s *session) {
	if w[path] == nil {
		w[path] = map[*session]struct{}{}
	}
	w[path][s] = struct{}{}
}

func (w watches) remove(path string, s *session) {
	delete(w[path], s)
	if len(w[path]) == 0 {
		delete(w, path)
	}
}

// request is one transaction that waits for its commit.
type request struct {
	sess *session
	ops  []zkmeta.Op
	kind requestKind

	// Written by the committer, read after submit.
	results []zkmeta.Result
	err     error

	done    bool // under commitMu
	changes []change
	sets    []int // the operation that each change is
}

// matters says whether there is anything to remember: a multi of checks leaves
// nothing.
func (r *request) matters() bool { return len(r.changes) > 0 || r.kind != multi }

type requestKind int

const (
	multi requestKind = iota
	beginSession
	endSession
)

func newEnsemble(c clock.Clock, t *tree, j *journal) *ensemble {
	if c == nil {
		c = clock.System{}
	}
	return &ensemble{clock: c, journal: j, tree: t, data: watches{}, child: watches{}, stores: map[*Store]struct{}{}}
}

// maxBatch bounds the operations' bytes that share one write and fsync.
const maxBatch = 8 << 20

// submit commits the requests and returns when all are settled. Whoever gets
// commitMu commits what everybody has queued so far: while one batch is being
// made durable the next one gathers.
func (e *ensemble) submit(requests ...*request) {
	e.queueMu.Lock()
	e.queue = append(e.queue, requests...)
	e.queueMu.Unlock()
	last := requests[len(requests)-1]
	e.commitMu.Lock()
	defer e.commitMu.Unlock()
	for !last.done { // the queue is first in, first out
		e.commit(e.nextBatch())
	}
}

func (e *ensemble) nextBatch() []*request {
	e.queueMu.Lock()
	defer e.queueMu.Unlock()
	n, bytes := 0, 0
	for n < len(e.queue) && (n == 0 || bytes < maxBatch) {
		bytes += zkmeta.Size(e.queue[n].ops)
		n++
	}
	batch := e.queue[:n:n]
	e.queue = e.queue[n:]
	if len(e.queue) == 0 {
		e.queue = nil
	}
	return batch
}

// commit settles a batch. The caller holds commitMu.
func (e *ensemble) commit(batch []*request) {
	ms := e.clock.Now().UnixMilli()
	txns := e.prepareBatch(batch, ms)
	var err error
	if e.journal != nil && len(txns) > 0 {
		body := []byte{byte(frameBatch)}
		for _, t := range txns {
			body = appendTxn(body, t)
		}
		err = e.journal.append(body, e.tree)
	}
	e.mu.Lock()
	if err != nil {
		for _, r := range batch {
			if r.err == nil && r.matters() {
				r.results, r.err = nil, err
			}
		}
		if e.journal.broken != nil {
			e.failLocked(err)
		}
	} else {
		e.applyLocked(batch, ms)
	}
	for _, r := range batch {
		r.done = true
	}
	e.mu.Unlock()
	if e.journal != nil {
		e.journal.maybeCompact(e.tree)
	}
}

func (e *ensemble) prepareBatch(batch []*request, ms int64) []txn {
	over := newOverlay(e.tree)
	zxid := e.tree.zxid
	var txns []txn
	for _, r := range batch {
		e.prepare(over, r)
		if r.err != nil || !r.matters() {
			continue
		}
		zxid++
		txns = append(txns, txn{zxid, ms, r.changes})
		if r.kind == beginSession {
			r.sess.id = sessionBase + zxid
		}
	}
	return txns
}

// sessionBase makes a session's id look like one: "kb", then its first zxid.
const sessionBase = 0x6b62 << 40

func (e *ensemble) prepare(over *overlay, r *request) {
	switch {
	case e.failed != nil:
		r.err = e.failed
	case r.kind == beginSession:
		r.changes = over.endSession(e.orphans())
	case r.sess.dead:
		r.err = zkmeta.ErrSessionExpired
	case r.kind == endSession:
		r.sess.dead = true
		r.changes = over.endSession(slices.Sorted(maps.Keys(e.tree.ephemerals[r.sess.id])))
	default:
		changes, results, failed := over.prepare(r.sess.id, r.ops)
		if failed != nil {
			r.results, r.err = zkmeta.FailedResults(len(r.ops), failed), failed
			return
		}
		r.changes, r.results = changes, results
		for i, op := range r.ops {
			if op.Kind != zkmeta.OpCheck {
				r.sets = append(r.sets, i)
			}
		}
	}
}

// orphans are the ephemerals that are there when a session begins: all of
// earlier processes, as a file has one session at a time. Sessions without a
// file do not outlive their process.
func (e *ensemble) orphans() []string {
	var paths []string
	if e.journal != nil {
		for _, set := range e.tree.ephemerals {
			paths = slices.AppendSeq(paths, maps.Keys(set))
		}
		slices.Sort(paths)
	}
	return paths
}

func (e *ensemble) applyLocked(batch []*request, ms int64) {
	for _, r := range batch {
		if r.err != nil || !r.matters() {
			continue
		}
		e.tree.zxid++
		for i, c := range r.changes {
			n, err := e.tree.apply(c, e.tree.zxid, ms)
			if err != nil {
				panic("embedded: a prepared change does not apply: " + err.Error())
			}
			if r.kind == multi && c.kind == zkmeta.OpSet {
				r.results[r.sets[i]].Stat = n.stat()
			}
			e.triggerLocked(c)
		}
		if r.kind == endSession {
			e.forgetLocked(r.sess)
		}
	}
}

// triggerLocked fires the watches that a change meets.
func (e *ensemble) triggerLocked(c change) {
	parent, _ := zkmeta.Parent(c.path)
	switch c.kind {
	case zkmeta.OpCreate:
		e.fireLocked(e.data, c.path, zkmeta.Created)
		e.fireLocked(e.child, parent, zkmeta.ChildrenChanged)
	case zkmeta.OpSet:
		e.fireLocked(e.data, c.path, zkmeta.DataChanged)
	case zkmeta.OpDelete:
		for s := range e.data[c.path] { // one event for a session that watches both
			if s.store.connected {
				e.child.remove(c.path, s)
			}
		}
		e.fireLocked(e.data, c.path, zkmeta.Deleted)
		e.fireLocked(e.child, c.path, zkmeta.Deleted)
		e.fireLocked(e.child, parent, zkmeta.ChildrenChanged)
	}
}

// fireLocked leaves the watches of a store without a connection as they are:
// they all fire when it has one again.
func (e *ensemble) fireLocked(w watches, path string, t zkmeta.EventType) {
	for s := range w[path] {
		if s.store.connected {
			w.remove(path, s)
			s.store.feed.Publish(zkmeta.Event{Generation: s.generation, Type: t, Path: path})
		}
	}
}

// forgetLocked drops the watches of a session that has ended.
func (e *ensemble) forgetLocked(s *session) {
	for _, w := range []watches{e.data, e.child} {
		for path := range w {
			w.remove(path, s)
		}
	}
}

// failLocked ends every session: a store that can no longer write must not be
// taken for one that works.
func (e *ensemble) failLocked(err error) {
	e.failed = err
	for s := range e.stores {
		s.endLocked()
	}
}
