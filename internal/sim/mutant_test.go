package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	mutantsFlag = flag.Bool("sim.mutants", false, "run TestMutants: the cores themselves are changed, one place at a time")
	mutantSeeds = flag.Int("sim.mutantseeds", 2000, "within how many seeds a changed core has to be caught")
)

// mutants are changes of the cores' source. None of them is built into anything
// but the test binary that runs it.
var mutants = []struct{ name, file, was, is string }{
	{"hw-over-committed-isr-only", "partition/state.go", "r.maximal || r.LEO >= 0 &&", "slices.Contains(s.isr, r.ID) || r.LEO >= 0 &&"},
	{"hw-without-acknowledged-epoch", "partition/state.go", "r.maximal || r.LEO >= 0 &&", "r.LEO >= 0 && r.maximal || r.LEO >= 0 &&"},
	{"hw-below-min-isr", "partition/state.go", "s.role != Leader || int32(len(s.isr)) < s.EffectiveMinISR()", "s.role != Leader"},
	{"expand-from-hw", "partition/isr.go", "r.LEO < max(s.hw, s.epochStart)", "r.LEO < s.hw"},
	{"expand-anybody", "partition/isr.go", "r.LEO < max(s.hw, s.epochStart)", "r.LEO < 0"},
	{"unknown-reverts", "partition/isr.go", "p.ZKVersion != s.zkVer || o == Unknown {\n\t\treturn e\n\t}\n\tswitch {\n\tcase o == Reverted:", "p.ZKVersion != s.zkVer {\n\t\treturn e\n\t}\n\tswitch {\n\tcase o != Accepted:"},
	{"follower-hw-beyond-log", "partition/follower.go", "max(s.hw, min(leaderHW, leo))", "max(s.hw, leaderHW)"},
	{"truncate-where-told", "partition/follower.go", "return min(end, ownEnd, s.leo), ownEpoch != epoch", "_ = ownEpoch\n\treturn min(end, s.leo), false"},
	{"same-epoch-again", "partition/state.go", "case epoch <= s.epoch:", "case epoch < s.epoch:"},
	{"stale-epochs-lead", "partition/state.go", "case asked < s.epoch:", "case asked < s.epoch-1:"},
	{"remotes-kept", "partition/state.go", "s.remotes = newRemotes(s.self, a.Replicas, l.ISR, now)", "if s.remotes == nil {\n\t\ts.remotes = newRemotes(s.self, a.Replicas, l.ISR, now)\n\t}"},
	{"epoch-start-is-hw", "partition/state.go", "s.epochStart = s.leo", "s.epochStart = s.hw"},
	{"elect-anybody", "controller/elect.go", "!im.fit(p, r.id) || !slices.Contains(p.state.ISR, r.id) {", "!im.fit(p, r.id) {"},
	{"epoch-stays", "controller/elect.go", "s.LeaderEpoch++", "_ = 0"},
	{"alter-any-leader-epoch", "controller/alter.go", "case a.LeaderEpoch < s.LeaderEpoch:", "case false:"},
	{"alter-any-version", "controller/alter.go", "case a.Version < s.ZKVersion:", "case false:"},
	{"alter-any-sender", "controller/alter.go", "case a.Sender != s.Leader:", "case false:"},
	{"bounce-unnoticed", "controller/facts.go", "case live && old.Epoch == b.Epoch:", "case live:"},
}

var caught = regexp.MustCompile(`seed (\d+): (\w+): (.*)`)

// TestMutants changes one place of the cores at a time, with go's overlay of
// source files, and expects the seeds to notice.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("only with -sim.mutants")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(src), m.was) != 1 {
				t.Skipf("%s has %q %d times: the mutant needs a new place", m.file, m.was, strings.Count(string(src), m.was))
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
			write(t, changed, []byte(strings.Replace(string(src), m.was, m.is, 1)))
			list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, overlay, list)
			cmd := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-run", "^TestSeeds$", ".", "-sim.brief",
				"-sim.seeds", strconv.Itoa(*mutantSeeds))
			out, err := cmd.CombinedOutput()
			switch found := caught.FindSubmatch(out); {
			case found != nil:
				t.Logf("after %s seeds: %s: %s", found[1], found[2], found[3])
			case bytes.Contains(out, []byte("panic:")):
				t.Logf("panics: %s", firstLine(out, "panic:"))
			case err == nil:
				t.Errorf("not caught in %d seeds", *mutantSeeds)
			default:
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func firstLine(out []byte, with string) string {
	for l := range strings.Lines(string(out)) {
		if strings.Contains(l, with) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}
