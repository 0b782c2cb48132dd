package embedded

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// node is one znode. creates counts the children ever created: it numbers the
// sequential ones.
type node struct {
	data         []byte // never changed in place
	version      int32
	creates      int32
	czxid, mzxid int64
	ctime, mtime int64 // ms
	owner        int64
	children     map[string]struct{}
}

func (n *node) stat() zkmeta.Stat {
	return zkmeta.Stat{
		Version: cluster.ZKVersion(n.version),
		Czxid:   n.czxid, Mzxid: n.mzxid,
		Ctime: n.ctime, Mtime: n.mtime,
		EphemeralOwner: n.owner,
		NumChildren:    int32(len(n.children)),
	}
}

// tree is all znodes by path. The root is always there, the parent of every
// other is there, and zxid is that of the latest transaction, so no node's is
// above it.
type tree struct {
	nodes      map[string]*node
	ephemerals map[int64]map[string]struct{} // by owner
	zxid       int64
}

func newTree() *tree {
	return &tree{nodes: map[string]*node{"/": {}}, ephemerals: map[int64]map[string]struct{}{}}
}

// change is one effect of a transaction, with every choice made: applying it
// again to the same tree gives the same.
type change struct {
	kind  zkmeta.OpKind // create, set or delete
	path  string
	data  []byte
	owner int64 // create: 0 for a persistent znode
}

// txn is what is journaled: an accepted multi, or the end or begin of a session.
type txn struct {
	zxid    int64
	timeMs  int64
	changes []change
}

func (t *tree) sortedPaths() []string { return slices.Sorted(maps.Keys(t.nodes)) }

// insert puts a node under its parent, which must be there.
func (t *tree) insert(path string, n *node) error {
	parentPath, ok := zkmeta.Parent(path)
	parent := t.nodes[parentPath]
	if !ok || parent == nil {
		return fmt.Errorf("%s has no parent", path)
	}
	if t.nodes[path] != nil {
		return fmt.Errorf("%s is there twice", path)
	}
	if parent.children == nil {
		parent.children = map[string]struct{}{}
	}
	parent.children[childName(path)] = struct{}{}
	t.nodes[path] = n
	if n.owner != 0 {
		if t.ephemerals[n.owner] == nil {
			t.ephemerals[n.owner] = map[string]struct{}{}
		}
		t.ephemerals[n.owner][path] = struct{}{}
	}
	return nil
}

// apply carries out one change. Its errors mean a damaged journal: a prepared
// change always applies.
func (t *tree) apply(c change, zxid, ms int64) (*node, error) {
	switch c.kind {
	case zkmeta.OpCreate:
		n := &node{data: c.data, czxid: zxid, mzxid: zxid, ctime: ms, mtime: ms, owner: c.owner}
		if err := t.insert(c.path, n); err != nil {
			return nil, err
		}
		parent, _ := zkmeta.Parent(c.path)
		t.nodes[parent].creates++
		return n, nil
	case zkmeta.OpSet:
		n := t.nodes[c.path]
		if n == nil {
			return nil, fmt.Errorf("%s is set but not there", c.path)
		}
		n.data, n.mzxid, n.mtime = c.data, zxid, ms
		n.version++
		return n, nil
	case zkmeta.OpDelete:
		n := t.nodes[c.path]
		if n == nil || len(n.children) > 0 || c.path == "/" {
			return nil, fmt.Errorf("%s is deleted but not there or not childless", c.path)
		}
		t.remove(c.path, n)
		return n, nil
	}
	return nil, fmt.Errorf("unknown change %d", c.kind)
}

func (t *tree) remove(path string, n *node) {
	delete(t.nodes, path)
	parentPath, _ := zkmeta.Parent(path)
	parent := t.nodes[parentPath]
	delete(parent.children, childName(path))
	if len(parent.children) == 0 {
		parent.children = nil // a map keeps its room for ever
	}
	if n.owner != 0 {
		delete(t.ephemerals[n.owner], path)
		if len(t.ephemerals[n.owner]) == 0 {
			delete(t.ephemerals, n.owner)
		}
	}
}

func childName(path string) string {
	parent, _ := zkmeta.Parent(path)
	if parent == "/" {
		return path[1:]
	}
	return path[len(parent)+1:]
}
