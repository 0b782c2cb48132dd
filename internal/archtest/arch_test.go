package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/kbroker/kbroker/"

type source struct {
	path  string // from the root
	test  bool
	file  *ast.File
	lines int
	fset  *token.FileSet
}

// packages parses every Go file of the module, by folder.
func packages(t *testing.T) map[string][]source {
	t.Helper()
	root := filepath.Join("..", "..")
	out := map[string][]source{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "node_modules" || len(name) > 2 && name[0] == '.') {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		out[dir] = append(out[dir], source{rel, strings.HasSuffix(name, "_test.go"), f, strings.Count(string(src), "\n"), fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ruleFor(dir string) (rule, bool) {
	if r, ok := rules[dir]; ok {
		return r, true
	}
	for pattern, r := range rules {
		if matches(pattern, dir) {
			return r, true
		}
	}
	return rule{}, false
}

func matches(pattern, dir string) bool {
	base, below := strings.CutSuffix(pattern, "/...")
	return dir == pattern || below && (dir == base || strings.HasPrefix(dir, base+"/"))
}

func imports(f *ast.File) []string {
	var out []string
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

func TestEveryPackageHasARule(t *testing.T) {
	for dir := range packages(t) {
		if _, ok := ruleFor(dir); !ok {
			t.Errorf("%s has no rule in internal/archtest/rules.go: say what it may import", dir)
		}
	}
}

func TestImports(t *testing.T) {
	for dir, files := range packages(t) {
		r, _ := ruleFor(dir)
		for _, f := range files {
			if f.test {
				continue
			}
			for _, imp := range imports(f.file) {
				own, ok := strings.CutPrefix(imp, module)
				if ok && !slices.ContainsFunc(r.imports, func(p string) bool { return matches(p, own) }) {
					t.Errorf("%s imports %s, which %s may not", f.path, own, dir)
				}
			}
		}
	}
}

func TestPurity(t *testing.T) {
	for dir, files := range packages(t) {
		if r, _ := ruleFor(dir); !r.pure {
			continue
		}
		for _, f := range files {
			if f.test {
				continue
			}
			for _, imp := range imports(f.file) {
				if slices.Contains(impure, imp) && !slices.Contains(excused[dir], imp) {
					t.Errorf("%s is pure and %s imports %s", dir, f.path, imp)
				}
			}
			ast.Inspect(f.file, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s is pure and starts a goroutine at %v", dir, f.fset.Position(x.Pos()))
				case *ast.SelectorExpr:
					if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains([]string{"Now", "Sleep", "After", "NewTimer", "Since"}, x.Sel.Name) {
						t.Errorf("%s is pure and reads the clock at %v", dir, f.fset.Position(x.Pos()))
					}
				}
				return true
			})
		}
	}
}

func TestDocs(t *testing.T) {
	for dir, files := range packages(t) {
		if strings.HasPrefix(dir, "cmd/") {
			continue
		}
		documented := slices.ContainsFunc(files, func(f source) bool {
			return filepath.Base(f.path) == "doc.go" && f.file.Doc != nil
		})
		if !documented {
			t.Errorf("%s has no doc.go that says what it owns and never does", dir)
		}
	}
}

func TestFileSizes(t *testing.T) {
	for _, files := range packages(t) {
		for _, f := range files {
			if f.lines > maxLines {
				t.Errorf("%s has %d lines, at most %d", f.path, f.lines, maxLines)
			}
		}
	}
}

func TestMainIsShort(t *testing.T) {
	for _, f := range packages(t)["cmd/kbroker"] {
		if filepath.Base(f.path) == "main.go" && f.lines >= 50 {
			t.Errorf("%s has %d lines, under 50 wanted", f.path, f.lines)
		}
	}
}

func TestNoSleepInTests(t *testing.T) {
	for dir, files := range packages(t) {
		if dir == "integration" || strings.HasPrefix(dir, "bench") {
			continue
		}
		for _, f := range files {
			if !f.test || maySleep[f.path] != "" {
				continue
			}
			ast.Inspect(f.file, func(n ast.Node) bool {
				if x, ok := n.(*ast.SelectorExpr); ok && x.Sel.Name == "Sleep" {
					if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" {
						t.Errorf("%v sleeps: wait for what is awaited", f.fset.Position(x.Pos()))
					}
				}
				return true
			})
		}
	}
}
