package zkmetatest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// model is the tree as simply as it can be said: every multi works on a copy,
// which is kept or thrown away.
type model map[string]modelNode

type modelNode struct {
	data     []byte
	version  int32
	created  int // children ever created
	children int
	owner    int64
}

func (m model) copy() model {
	c := model{}
	for path, n := range m {
		c[path] = n
	}
	return c
}

// apply is a multi: the model after it, the created paths, or which operation
// fails and how.
func (m model) apply(session int64, ops []zkmeta.Op) (next model, paths []string, index int, err error) {
	next = m.copy()
	for i, op := range ops {
		path, err := next.step(session, op)
		if err != nil {
			return m, nil, i, err
		}
		paths = append(paths, path)
	}
	return next, paths, -1, nil
}

func (m model) step(session int64, op zkmeta.Op) (string, error) {
	n, there := m[op.Path]
	if op.Kind != zkmeta.OpCreate {
		if !there {
			return "", zkmeta.ErrNoNode
		}
		if op.Version != cluster.AnyZKVersion && int32(op.Version) != n.version {
			return "", zkmeta.ErrBadVersion
		}
	}
	up := op.Path[:strings.LastIndex(op.Path, "/")]
	if up == "" {
		up = "/"
	}
	parent, hasParent := m[up]
	switch op.Kind {
	case zkmeta.OpSet:
		n.data, n.version = op.Data, n.version+1
		m[op.Path] = n
	case zkmeta.OpDelete:
		if n.children > 0 {
			return "", zkmeta.ErrNotEmpty
		}
		delete(m, op.Path)
		parent.children--
		m[up] = parent
	case zkmeta.OpCreate:
		if !hasParent {
			return "", zkmeta.ErrNoNode
		}
		path := op.Path
		if op.Mode == zkmeta.PersistentSequential {
			path += fmt.Sprintf("%010d", parent.created)
		}
		if _, there := m[path]; there {
			return "", zkmeta.ErrNodeExists
		}
		if parent.owner != 0 {
			return "", zkmeta.ErrNoChildrenForEphemerals
		}
		fresh := modelNode{data: op.Data}
		if op.Mode == zkmeta.Ephemeral {
			fresh.owner = session
		}
		m[path] = fresh
		parent.created++
		parent.children++
		m[up] = parent
		return path, nil
	}
	return "", nil
}

// RandomOp makes an operation on a small tree below root; versions is what a
// caller may guess from.
func RandomOp(r *rand.Rand, root string) zkmeta.Op {
	path := root
	for range 1 + r.IntN(3) {
		path += "/" + string(rune('a'+r.IntN(3)))
	}
	var data []byte
	if r.IntN(4) > 0 {
		data = make([]byte, r.IntN(20))
	}
	version := cluster.ZKVersion(r.IntN(4) - 1)
	switch r.IntN(10) {
	case 0, 1, 2:
		return zkmeta.Create(path, data, zkmeta.Persistent, nil)
	case 3:
		return zkmeta.Create(path, data, zkmeta.Ephemeral, nil)
	case 4:
		return zkmeta.Create(path, data, zkmeta.PersistentSequential, nil)
	case 5, 6:
		return zkmeta.Set(path, data, version)
	case 7, 8:
		return zkmeta.Delete(path, version)
	}
	return zkmeta.Check(path, version)
}

// testRandom compares the store with the model, multi by multi.
func testRandom(f *fixture) {
	seed := uint64(time.Now().UnixNano())
	f.t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const root = "/r"
	f.multi(zkmeta.Create(root, nil, zkmeta.Persistent, nil))
	m := model{"/": {}, root: {}}
	zxid := int64(0)
	for round := range 600 {
		ops := make([]zkmeta.Op, 1+r.IntN(4))
		for i := range ops {
			ops[i] = RandomOp(r, root)
		}
		next, paths, index, want := m.apply(f.s.ID(), ops)
		results, err := f.s.Multi(f.ctx, ops...)
		if !errors.Is(err, want) {
			f.t.Fatalf("round %d, %v: got error %v, want %v at %d", round, ops, err, want, index)
		}
		if failed, ok := errors.AsType[*zkmeta.MultiError](err); ok && failed.Index != index {
			f.t.Fatalf("round %d, %v: operation %d fails, want %d (%v)", round, ops, failed.Index, index, want)
		}
		m = next
		for i := range paths {
			equal(f, fmt.Sprintf("round %d, path of %v", round, ops[i]), results[i].Path, paths[i])
		}
		if round%20 == 0 || round == 599 {
			f.compare(m, &zxid)
		}
	}
}

// compare reads every znode of the model and lists the children of each.
func (f *fixture) compare(m model, zxid *int64) {
	f.t.Helper()
	paths := sortedKeys(m)
	latest := *zxid
	for i, r := range f.s.GetMany(f.ctx, paths, false) {
		if paths[i] == "/" {
			continue // an ensemble has znodes of its own there
		}
		f.ok(r.Err)
		n := m[paths[i]]
		if !bytes.Equal(r.Data, n.data) || (r.Data == nil) != (n.data == nil) || int32(r.Stat.Version) != n.version ||
			int(r.Stat.NumChildren) != n.children || r.Stat.EphemeralOwner != n.owner {
			f.t.Fatalf("%s: got %q %+v, want %+v", paths[i], r.Data, r.Stat, n)
		}
		latest = max(latest, r.Stat.Mzxid)
		names, _, err := f.s.Children(f.ctx, paths[i], false)
		f.ok(err)
		equal(f, "children of "+paths[i], len(names), n.children)
		for _, name := range names {
			if _, there := m[paths[i]+"/"+name]; !there {
				f.t.Fatalf("%s/%s is there and should not be", paths[i], name)
			}
		}
	}
	*zxid = latest
}
