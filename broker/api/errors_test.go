package api

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/protocol"
)

func TestCodeOf(t *testing.T) {
	if got := CodeOf(nil); got != 0 {
		t.Errorf("CodeOf(nil) is %d", got)
	}
	for _, row := range codes {
		if got := CodeOf(fmt.Errorf("orders-3: %w", row.err)); got != int16(row.code) {
			t.Errorf("%v, wrapped, is %d, want %d", row.err, got, row.code)
		}
	}
	if got := CodeOf(errors.New("something else")); got != int16(protocol.ErrUnknownServerError) {
		t.Errorf("an unknown error is %d, want UNKNOWN_SERVER_ERROR", got)
	}
	if got := CodeOf(fmt.Errorf("x: %w", protocol.ErrInvalidRequest)); got != 42 {
		t.Errorf("a code of its own is %d, want 42", got)
	}
}

// notOnTheWire are sentinels that no handler can meet, each with the reason.
var notOnTheWire = map[string]string{
	"logstore.ErrDirLocked":         "at the start only",
	"logstore.ErrMetaProperties":    "at the start only",
	"logstore.ErrCorruptCheckpoint": "at the start only",
	"logstore.ErrDamaged":           "of the offline tools",
	"logstore.ErrUnknownFile":       "of the offline tools",
	"producers.ErrCorruptSnapshot":  "while loading: rebuilt from the log",
	"logstore.ErrStaleSlice":        "while sending: the connection is closed",
	"logstore.ErrUnexpectedOffset":  "followers only",
	"logstore.ErrOffsetsOutOfOrder": "followers only",
	"zkmeta.ErrRolledBack":          "stands beside the operation's own error",
	"record.ErrShort":               "callers handle it themselves",
	"record.ErrLong":                "the cleaner only",
	"loop.ErrKRaft":                 "at the start only",
	"loop.ErrClosed":                "after the last request",
}

// TestEverySentinelHasACode reads the packages' sources: each exported sentinel
// is in the table or in notOnTheWire.
func TestEverySentinelHasACode(t *testing.T) {
	inTable := map[string]bool{}
	for _, name := range tableNames(t) {
		inTable[name] = true
	}
	for pkg, dir := range map[string]string{
		"partition": "partition", "replica": "partition/replica", "logstore": "logstore", "producers": "logstore/producers",
		"record": "protocol/record", "topics": "broker/topics", "loop": "controller/loop", "cluster": "cluster", "shards": "coordinator/shards",
	} {
		for _, name := range sentinels(t, filepath.Join("..", "..", dir)) {
			full := pkg + "." + name
			if !inTable[full] && notOnTheWire[full] == "" {
				t.Errorf("%s has no code in broker/api/errors.go and no reason in notOnTheWire", full)
			}
		}
	}
}

func parseDir(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// sentinels are the names of a package's exported variables made by errors.New.
func sentinels(t *testing.T, dir string) []string {
	var out []string
	for _, f := range parseDir(t, dir) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, id := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(id.Name, "Err") {
						out = append(out, id.Name)
					}
				}
			}
		}
	}
	return out
}

// tableNames are the sentinels in the table, as its source names them.
func tableNames(t *testing.T) []string {
	var out []string
	for _, f := range parseDir(t, ".") {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Err") {
				if id, ok := s.X.(*ast.Ident); ok {
					out = append(out, id.Name+"."+s.Sel.Name)
				}
			}
			return true
		})
	}
	return out
}
