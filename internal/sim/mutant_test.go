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
	{"commit-any-generation", "coordinator/group/commits.go", "case m.Generation != c.generation:", "case false:"},
	{"commit-while-completing", "coordinator/group/commits.go", "case c.is(completingRebalance):", "case false:"},
	{"sync-any-generation", "coordinator/group/rebalance.go", "case m.Generation != c.generation:", "case false:"},
	{"heartbeat-any-generation", "coordinator/group/members.go", "case m.Generation != c.generation:", "case false:"},
	{"rebalance-unsaid", "coordinator/group/members.go", "if c.is(preparingRebalance) {\n\t\treturn protocol.ErrRebalanceInProgress", "if false {\n\t\treturn protocol.ErrRebalanceInProgress"},
	{"instance-unfenced", "coordinator/group/join.go", "if x.id != id {\n\t\t\treturn nil, protocol.ErrFencedInstanceID", "if false {\n\t\t\treturn nil, protocol.ErrFencedInstanceID"},
	{"generation-stays", "coordinator/group/rebalance.go", "	c.generation++\n", ""},
	{"owners-not-written", "coordinator/group/rebalance.go", "rec := g.metaRecord(func(x *member) []byte { return given[x.id] })", "rec := g.metaRecord(func(x *member) []byte { return x.assignment })"},
	{"late-stay", "coordinator/group/rebalance.go", "if x.join == coordinator.NoToken && x.instance == nil {\n\t\t\ts.remove(c, x)", "if false {\n\t\t\ts.remove(c, x)"},
	{"sync-not-owed", "coordinator/group/rebalance.go", "		if x.owes {\n			s.dismiss(c, x)", "		if false {\n			s.dismiss(c, x)"},
	{"sessions-not-woken", "coordinator/group/classic.go", "	for _, x := range c.order {\n		s.arm(&x.timer, x.session)", "	for _, x := range c.order[:0] {\n		s.arm(&x.timer, x.session)"},
	{"generation-forgotten", "coordinator/group/classic.go", "m.protocolType, m.protocol, m.generation, m.since", "m.protocolType, m.protocol, m.generation-1, m.since"},
	{"old-connection-kept", "coordinator/group/join.go", "	s.answerJoin(c, x, refusedJoin(x.id, protocol.ErrRebalanceInProgress))\n", ""},
	{"replaced-unwritten", "coordinator/group/join.go", "	s.write(rec)\n	answer := c.joined(x)", "	answer := c.joined(x)"},
	{"offset-at-once", "coordinator/group/commits.go", "	s.out.Records = records\n", "	s.out.Records = records\n	for _, r := range records {\n		_ = s.Apply(coordinator.Entry{Record: r})\n	}\n	s.out.Records = nil\n"},
	{"consumer-commit-any-epoch", "coordinator/group/consumer_leave.go", "return s.mayCommitSince(x, m)", "return protocol.None"},
	{"given-before-free", "coordinator/group/consumer_reconcile.go", "return !taken(id, p)", "return true || !taken(id, p)"},
	{"freed-before-given-up", "coordinator/group/consumer_reconcile.go", "if holds(owned, m.revoking) {", "if false {"},
	{"revoked-unasked", "coordinator/group/consumer_reconcile.go", "len(surplus) > 0 && holds(owned, surplus)", "false"},
	{"consumer-session-not-kept", "coordinator/group/consumer_heartbeat.go", "	s.arm(&l.session, s.config.Consumer.SessionTimeout)\n", "	if !l.session.armed() {\n		s.arm(&l.session, s.config.Consumer.SessionTimeout)\n	}\n"},
	{"revoke-for-ever", "coordinator/group/consumer_heartbeat.go", "		s.armRevoke(l, reached)\n", "		s.armRevoke(l, reached)\n		s.disarm(&l.revoke)\n"},
	{"complete-outside-isr", "controller/reassign.go", "!slices.Contains(p.state.ISR, id) || !im.fit(p, id)", "!im.fit(p, id)"},
	{"complete-unled", "controller/reassign.go", "!im.online(p, p.state.Leader) || p.suspect && im.leaderRestarted(p)", "false"},
	{"delete-whom-the-state-names", "controller/reassign.go", "if p.state.Leader == id || slices.Contains(p.state.ISR, id) {", "if p.state.Leader == id {"},
	{"drop-the-isr", "controller/reassign.go", "return !p.known || slices.ContainsFunc(p.state.ISR", "return true || slices.ContainsFunc(p.state.ISR"},
	{"assignment-untold", "controller/reassign.go", "return p.moving && !p.told.Equal(im.effective(p))", "return false"},
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
			test := "^TestSeeds$"
			if strings.HasPrefix(m.file, "coordinator/") {
				test = "^TestGroupSeeds$"
			}
			if m.file == "controller/reassign.go" {
				test = "^TestMoveSeeds$"
			}
			if strings.HasPrefix(m.file, "coordinator/group/consumer_") {
				test = "^TestConsumerSeeds$"
			}
			cmd := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-run", test, ".", "-sim.brief",
				"-sim.seeds", strconv.Itoa(*mutantSeeds), "-sim.groupseeds", strconv.Itoa(*mutantSeeds), "-sim.moveseeds", strconv.Itoa(*mutantSeeds))
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
