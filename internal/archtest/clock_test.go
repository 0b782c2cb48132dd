package archtest

import (
	"go/ast"
	"testing"
)

// notSpans are the files that take nanoseconds of the wall clock, and what for.
var notSpans = map[string]string{
	"broker/broker.go":           "seeds the ids of fetch sessions",
	"zkmeta/zkmetatest/model.go": "seeds a test",
}

// TestSpansAreMonotonic: who measures a span subtracts times, which goes by the
// monotonic clock. Nanoseconds since 1970 go by the wall clock, which steps.
func TestSpansAreMonotonic(t *testing.T) {
	used := map[string]bool{}
	for _, sources := range packages(t) {
		for _, s := range sources {
			if s.test || matches("bench/...", s.path) || matches("integration/...", s.path) {
				continue
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				x, ok := n.(*ast.SelectorExpr)
				if !ok || x.Sel.Name != "UnixNano" {
					return true
				}
				used[s.path] = true
				if notSpans[s.path] == "" {
					t.Errorf("%s takes UnixNano of a time: subtract times to measure a span", s.fset.Position(x.Pos()))
				}
				return true
			})
		}
	}
	for path, why := range notSpans {
		if !used[path] {
			t.Errorf("%s does not take UnixNano any more (it was: %s)", path, why)
		}
	}
}
