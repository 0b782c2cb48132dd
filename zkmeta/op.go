package zkmeta

import (
	"fmt"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

// Mode is how a znode is created. The values are ZooKeeper's flags.
type Mode int32

// The modes that Kafka uses.
const (
	Persistent           Mode = 0
	Ephemeral            Mode = 1 // ends with the session
	PersistentSequential Mode = 2 // ten digits are appended to the path
)

// OpKind is what an operation does.
type OpKind int

// The kinds of operations.
const (
	OpCreate OpKind = iota + 1
	OpSet
	OpDelete
	OpCheck
)

// Op is one operation of a multi. Make it with Create, Set, Delete or Check.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte            // Create, Set; nil and empty are different
	Version cluster.ZKVersion // Set, Delete, Check: expected, or AnyZKVersion
	Mode    Mode              // Create
	ACL     ACL               // Create; nil = what the store's settings say for the path
}

// Create makes a znode whose parent exists.
func Create(path string, data []byte, mode Mode, acl ACL) Op {
	return Op{Kind: OpCreate, Path: path, Data: data, Mode: mode, ACL: acl}
}

// Set replaces the data of a znode that is at the version.
func Set(path string, data []byte, version cluster.ZKVersion) Op {
	return Op{Kind: OpSet, Path: path, Data: data, Version: version}
}

// Delete removes a childless znode that is at the version.
func Delete(path string, version cluster.ZKVersion) Op {
	return Op{Kind: OpDelete, Path: path, Version: version}
}

// Check fails the multi unless the znode is at the version.
func Check(path string, version cluster.ZKVersion) Op {
	return Op{Kind: OpCheck, Path: path, Version: version}
}

// String says what the operation does, for errors and logs; never its data.
func (op Op) String() string {
	switch op.Kind {
	case OpCreate:
		return "create " + op.Path
	case OpSet:
		return fmt.Sprintf("set %s at version %d", op.Path, op.Version)
	case OpDelete:
		return fmt.Sprintf("delete %s at version %d", op.Path, op.Version)
	case OpCheck:
		return fmt.Sprintf("check %s at version %d", op.Path, op.Version)
	}
	return fmt.Sprintf("invalid operation %d", op.Kind)
}

// MaxRequestBytes is the largest request that a ZooKeeper server takes with its
// default settings (jute.maxbuffer 0xfffff), less room for the headers. A larger
// one makes it cut the connection, so stores refuse it with ErrTooLarge.
const MaxRequestBytes = 0xfffff - 1024

// Size is about what the operation takes in a request.
func (op Op) Size() int {
	n := 32 + len(op.Path) + len(op.Data)
	for _, e := range op.ACL {
		n += 16 + len(e.Scheme) + len(e.ID)
	}
	if op.Kind == OpCreate && op.ACL == nil {
		n += 64 // the default access list
	}
	return n
}

// Size is about what the operations take in one request.
func Size(ops []Op) int {
	n := 0
	for _, op := range ops {
		n += op.Size()
	}
	return n
}

// CheckOps says what every store refuses before it sends or applies anything.
func CheckOps(ops []Op) error {
	for i, op := range ops {
		if err := ValidatePath(op.Path, op.Kind == OpCreate && op.Mode == PersistentSequential); err != nil {
			return &MultiError{i, op, err}
		}
	}
	if n := Size(ops); n > MaxRequestBytes {
		return fmt.Errorf("%w: %d operations from %s on need %d bytes, more than %d", ErrTooLarge, len(ops), ops[0].Path, n, MaxRequestBytes)
	}
	return nil
}

// ValidatePath checks a path by ZooKeeper's rule: absolute, no empty, "." or
// ".." component, no control characters. The path of a sequential create may
// end in a slash.
func ValidatePath(path string, sequential bool) error {
	bad := func(why string) error { return fmt.Errorf("%w %q: %s", ErrInvalidPath, clip(path), why) }
	switch {
	case path == "":
		return bad("empty")
	case path[0] != '/':
		return bad("does not begin with a slash")
	case path == "/" && !sequential:
		return nil
	}
	rest := path[1:]
	if sequential {
		rest += "0"
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part == "." || part == ".." {
			return bad(fmt.Sprintf("component %q", part))
		}
	}
	for _, r := range path {
		if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff {
			return bad(fmt.Sprintf("character %U", r))
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// Parent is the path of a znode's parent; "/" has none.
func Parent(path string) (string, bool) {
	i := strings.LastIndexByte(path, '/')
	switch {
	case i < 0 || path == "/":
		return "", false
	case i == 0:
		return "/", true
	}
	return path[:i], true
}
