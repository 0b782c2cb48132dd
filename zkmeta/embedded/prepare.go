package embedded

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

// overlay is the tree as it will be once the transactions of the present batch
// are applied. Readers go on seeing the tree: what is not durable is not seen.
type overlay struct {
	t     *tree
	nodes map[string]*outline
	undo  []saved
}

// outline is what a later operation needs to know of a node.
type outline struct {
	exists   bool
	version  int32
	creates  int32
	children int
	owner    int64
}

type saved struct {
	path string
	was  outline
}

func newOverlay(t *tree) *overlay { return &overlay{t: t, nodes: map[string]*outline{}} }

func (o *overlay) get(path string) *outline {
	if l := o.nodes[path]; l != nil {
		return l
	}
	l := &outline{}
	if n := o.t.nodes[path]; n != nil {
		*l = outline{true, n.version, n.creates, len(n.children), n.owner}
	}
	o.nodes[path] = l
	return l
}

// edit is get for changing: the multi's failure takes the change back.
func (o *overlay) edit(path string) *outline {
	l := o.get(path)
	o.undo = append(o.undo, saved{path, *l})
	return l
}

// prepare works out what a multi changes, and its results but for the Stats of
// sets; or its first failing operation, and then nothing has changed.
func (o *overlay) prepare(session int64, ops []zkmeta.Op) ([]change, []zkmeta.Result, *zkmeta.MultiError) {
	o.undo = o.undo[:0]
	changes := make([]change, 0, len(ops))
	results := make([]zkmeta.Result, len(ops))
	for i, op := range ops {
		c, err := o.step(session, op)
		if err != nil {
			for i := len(o.undo) - 1; i >= 0; i-- {
				*o.nodes[o.undo[i].path] = o.undo[i].was
			}
			return nil, nil, &zkmeta.MultiError{Index: i, Op: op, Err: err}
		}
		if c.kind == 0 {
			continue
		}
		if c.kind == zkmeta.OpCreate {
			results[i].Path = c.path
		}
		changes = append(changes, c)
	}
	return changes, results, nil
}

func (o *overlay) step(session int64, op zkmeta.Op) (change, error) {
	switch op.Kind {
	case zkmeta.OpCreate:
		return o.create(session, op)
	case zkmeta.OpSet:
		if err := o.expect(op.Path, op.Version); err != nil {
			return change{}, err
		}
		o.edit(op.Path).version++
		return change{kind: op.Kind, path: op.Path, data: bytes.Clone(op.Data)}, nil
	case zkmeta.OpDelete:
		return o.delete(op)
	case zkmeta.OpCheck:
		return change{}, o.expect(op.Path, op.Version)
	}
	return change{}, fmt.Errorf("invalid operation %d", op.Kind)
}

func (o *overlay) expect(path string, version cluster.ZKVersion) error {
	switch n := o.get(path); {
	case !n.exists:
		return zkmeta.ErrNoNode
	case version != cluster.AnyZKVersion && int32(version) != n.version:
		return zkmeta.ErrBadVersion
	}
	return nil
}

func (o *overlay) create(session int64, op zkmeta.Op) (change, error) {
	path := op.Path
	if op.ACL != nil && len(op.ACL) == 0 {
		return change{}, zkmeta.ErrInvalidACL
	}
	parentPath, ok := zkmeta.Parent(path)
	if !ok {
		return change{}, zkmeta.ErrNodeExists // the root
	}
	parent := o.get(parentPath)
	if !parent.exists {
		return change{}, zkmeta.ErrNoNode
	}
	if op.Mode == zkmeta.PersistentSequential {
		path = fmt.Sprintf("%s%010d", path, parent.creates)
	}
	if o.get(path).exists {
		return change{}, zkmeta.ErrNodeExists
	}
	if parent.owner != 0 {
		return change{}, zkmeta.ErrNoChildrenForEphemerals
	}
	c := change{kind: op.Kind, path: path, data: bytes.Clone(op.Data)}
	if op.Mode == zkmeta.Ephemeral {
		c.owner = session
	}
	*o.edit(path) = outline{exists: true, owner: c.owner}
	parent = o.edit(parentPath)
	parent.creates++
	parent.children++
	return c, nil
}

var errDeleteRoot = errors.New("the root cannot be deleted")

func (o *overlay) delete(op zkmeta.Op) (change, error) {
	if op.Path == "/" {
		return change{}, errDeleteRoot
	}
	if err := o.expect(op.Path, op.Version); err != nil {
		return change{}, err
	}
	if o.get(op.Path).children > 0 {
		return change{}, zkmeta.ErrNotEmpty
	}
	*o.edit(op.Path) = outline{}
	parentPath, _ := zkmeta.Parent(op.Path)
	o.edit(parentPath).children--
	return change{kind: op.Kind, path: op.Path}, nil
}

// endSession works out what the end of a session deletes.
func (o *overlay) endSession(paths []string) []change {
	o.undo = o.undo[:0]
	changes := make([]change, 0, len(paths))
	for _, path := range paths {
		if !o.get(path).exists { // deleted in this batch
			continue
		}
		*o.edit(path) = outline{}
		parentPath, _ := zkmeta.Parent(path)
		o.edit(parentPath).children--
		changes = append(changes, change{kind: zkmeta.OpDelete, path: path})
	}
	return changes
}
