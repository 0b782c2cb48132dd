package api

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/protocol"
)

var update = flag.Bool("update", false, "write docs/compat.md anew")

// TestCompatDoc keeps docs/compat.md as the registrations are.
func TestCompatDoc(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "compat.md")
	want := compatDoc()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the registrations say; run: go test ./broker/api -run TestCompatDoc -update", path)
	}
}

func compatDoc() string {
	var b strings.Builder
	b.WriteString(`# APIs

Made from the registrations in broker/api; do not edit. An API that is served is
served in every version that Apache Kafka 3.9 speaks in ZooKeeper mode; one that
is not is not advertised either.

| key | API | versions | served | notes |
|---|---|---|---|---|
`)
	served := 0
	for _, row := range protocol.APIs() {
		a, ok := registered[row.Key]
		yes := ""
		if ok {
			yes = "yes"
			served++
		}
		fmt.Fprintf(&b, "| %d | %s | %d-%d | %s | %s |\n", row.Key, row.Name, row.Min, row.Max, yes, a.Notes)
	}
	fmt.Fprintf(&b, "\n%d of %d.\n", served, len(protocol.APIs()))
	return b.String()
}

// TestEveryFileIsOneAPI: a file NN_name.go registers key NN.
func TestEveryFileIsOneAPI(t *testing.T) {
	files, err := filepath.Glob("[0-9][0-9]_*.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(files)+len(absent) != len(registered) {
		t.Errorf("%d files for %d APIs, %d of them without a file of their own: one file an API", len(files), len(registered), len(absent))
	}
	for _, f := range files {
		var key int16
		if _, err := fmt.Sscanf(f, "%d_", &key); err != nil {
			t.Fatal(err)
		}
		if _, ok := registered[key]; !ok {
			t.Errorf("%s is there, but API %d is not registered", f, key)
		}
	}
}
