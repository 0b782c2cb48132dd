package loop

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/journal"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// A state that cannot be understood costs its partition its controller, and
// nothing else: it is neither overwritten nor deleted, and the reason is told.
func TestUnreadableStates(t *testing.T) {
	for what, c := range map[string]struct{ data, why string }{
		"broken JSON":           {`{"controller_epoch":1,"lea`, "not the expected JSON"},
		"no JSON":               {"hello", "not the expected JSON"},
		"empty":                 {"", "empty"},
		"foreign":               {`{"owner":"somebody"}`, `\\\"leader\\\" is missing`},
		"unknown version":       {`{"controller_epoch":1,"leader":1,"version":2,"leader_epoch":4,"isr":[1]}`, "version 2 is not among the known ones"},
		"unknown own version":   {`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":[1],"kbroker":{"version":9}}`, "version 9 is not among the known ones"},
		"own key does not fit":  {`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":[1],"kbroker":{"version":1,"joined":[]}}`, "0 broker epochs for an ISR of 1"},
		"ISR of strings":        {`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":["1"]}`, "broker id"},
		"leader that is no id":  {`{"controller_epoch":1,"leader":-7,"version":1,"leader_epoch":4,"isr":[1]}`, "out of range"},
		"epoch that is too big": {`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":99999999999,"isr":[1]}`, "out of range"},
	} {
		t.Run(what, func(t *testing.T) {
			m := ensemble(t)
			f := newFake(t, m, 1)
			s, ctx := f.session(), context.Background()
			createTopic(t, s, "a", partitions(on(1), on(1)))
			must(t, zkmeta.CreateWithParents(ctx, s, zkmeta.StatePath(tpOf("a", 0)), []byte(c.data)))
			var log journal.Journal
			_, terms := contender(t, f, func(o *Options) { o.Logger = zerolog.New(&log) })
			terms.await(t, "true 1")
			f.awaitLeader(tpOf("a", 1), 1, 0)
			if data, st, err := s.Get(ctx, zkmeta.StatePath(tpOf("a", 0)), false); err != nil || string(data) != c.data || st.Version != 0 {
				t.Errorf("it is now %s at version %d, %v", data, st.Version, err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if h, hosts := f.hosts[tpOf("a", 0)]; hosts {
				t.Errorf("a broker was told of it: %+v", h)
			}
			if !log.Has(zkmeta.StatePath(tpOf("a", 0)), strings.ReplaceAll(c.why, `\\\`, `\`), `"level":"error"`) {
				t.Errorf("not told: %s\n%s", c.why, log.String())
			}
		})
	}
}

// Keys of others in a state are passed over.
func TestForeignKeysInAState(t *testing.T) {
	m := ensemble(t)
	f := newFake(t, m, 1)
	s := f.session()
	createTopic(t, s, "a", partitions(on(1)))
	must(t, zkmeta.CreateWithParents(context.Background(), s, zkmeta.StatePath(tpOf("a", 0)),
		[]byte(`{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":4,"isr":[1],"somebody":{"version":7}}`)))
	_, terms := contender(t, f)
	terms.await(t, "true 1")
	f.awaitLeader(tpOf("a", 0), 1, 4)
}

// 3.9 makes a sender the leader that is none; here nothing changes.
func TestAlterPartitionFromAFollower(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	id := createTopic(t, f1.session(), "a", partitions(on(1, 2)))
	f1.awaitLeader(tpOf("a", 0), 1, 0)
	before := stateOf(t, f1.session(), tpOf("a", 0))
	for _, isr := range [][]int32{{2}, {2, 1}, {1, 2}, {1}} {
		resp, err := l.AlterPartition(context.Background(), alterRequest(f2, id, 0, 0, isr...))
		must(t, err)
		if got := alterText(resp); got != "partition error 42" {
			t.Errorf("ISR %v: %s", isr, got)
		}
	}
	if after := stateOf(t, f1.session(), tpOf("a", 0)); !after.Equal(before) {
		t.Errorf("%+v became %+v", before, after)
	}
}

// A leader that saw an earlier incarnation of a follower catch up is refused
// (KIP-903).
func TestAlterPartitionOfAnEarlierIncarnation(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	id := createTopic(t, f1.session(), "a", partitions(on(1, 2)))
	f1.awaitLeader(tpOf("a", 0), 1, 0)
	earlier := int64(f2.epoch)
	f2.die()
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f2 = newFake(t, m, 2)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	ask := func(epoch int64) string {
		req := alterRequest(f1, id, 1, 1, 1, 2)
		req.Topics[0].Partitions[0].NewEpochISR[1].BrokerEpoch = epoch
		resp, err := l.AlterPartition(context.Background(), req)
		must(t, err)
		return alterText(resp)
	}
	if got := ask(earlier); got != "partition error 107" {
		t.Error(got)
	}
	if got := ask(int64(f2.epoch)); got != "leader 1 epoch 1 isr [1 2] v2" {
		t.Error(got)
	}
	if st := stateOf(t, f1.session(), tpOf("a", 0)); fmt.Sprint(st.History.Joined) != fmt.Sprint([]cluster.BrokerEpoch{f1.epoch, f2.epoch}) {
		t.Errorf("joined %v, epochs are %d and %d", st.History.Joined, f1.epoch, f2.epoch)
	}
}

// Brokers that do not list a finalized feature are not there for the controller,
// as with 3.9.
func TestFinalizedFeature(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	s, ctx := f1.session(), context.Background()
	var log journal.Journal
	_, c := contender(t, f1, func(o *Options) { o.Logger = zerolog.New(&log) })
	c.await(t, "true 1")
	f1.awaitLive(1, 2)
	createTopic(t, s, "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)

	// f1 lists it, f2 does not.
	reg, _, err := s.Get(ctx, zkmeta.BrokerPath(1), false)
	must(t, err)
	mine, err := zkmeta.DecodeBroker(1, reg)
	must(t, err)
	mine.Features = map[string]zkmeta.SupportedVersions{"metadata.shape": {Min: 1, Max: 3}}
	_, err = s.Multi(ctx, zkmeta.Set(zkmeta.BrokerPath(1), mine.Encode(), cluster.AnyZKVersion))
	must(t, err)
	f := zkmeta.Feature{Version: 2, Enabled: true, Finalized: map[string]zkmeta.FinalizedFeature{"metadata.shape": {Max: 2}}}
	_, err = s.Multi(ctx, zkmeta.Set(zkmeta.FeaturePath, f.Encode(), cluster.AnyZKVersion))
	must(t, err)
	f1.awaitLive(1)
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	if log.Count(zkmeta.FeaturePath, `"peer":2`, "does not support level 2 of feature", "left out of the cluster") != 1 || log.Has(zkmeta.BrokerPath(2)) {
		t.Error("not told why broker 2 is ignored")
	}
	f.Finalized = nil
	_, err = s.Multi(ctx, zkmeta.Set(zkmeta.FeaturePath, f.Encode(), cluster.AnyZKVersion))
	must(t, err)
	f1.awaitLive(1, 2)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
}

// A leader epoch that cannot rise is told of, and the state stays as it is: the
// next one would be below all others.
func TestLastLeaderEpoch(t *testing.T) {
	m := ensemble(t)
	f := newFake(t, m, 1)
	s, ctx := f.session(), context.Background()
	createTopic(t, s, "a", partitions(on(1, 9), on(1, 9)))
	const last, before = `{"controller_epoch":1,"leader":9,"version":1,"leader_epoch":2147483647,"isr":[9,1]}`, `{"controller_epoch":1,"leader":9,"version":1,"leader_epoch":2147483646,"isr":[9,1]}`
	must(t, zkmeta.CreateWithParents(ctx, s, zkmeta.StatePath(tpOf("a", 0)), []byte(last)))
	must(t, zkmeta.CreateWithParents(ctx, s, zkmeta.StatePath(tpOf("a", 1)), []byte(before)))
	var log journal.Journal
	_, terms := contender(t, f, func(o *Options) { o.Logger = zerolog.New(&log) })
	terms.await(t, "true 1")
	f.awaitLeader(tpOf("a", 1), 1, 2147483647)
	if data, st, err := s.Get(ctx, zkmeta.StatePath(tpOf("a", 0)), false); err != nil || string(data) != last || st.Version != 0 {
		t.Errorf("it is now %s at version %d, %v", data, st.Version, err)
	}
	if !log.Has(`"level":"error"`, `"partition":"a-0"`, "the leader epoch is the highest there is") {
		t.Errorf("not told:\n%s", log.String())
	}
}

// What elections ask of a topic's config is what its brokers run with: a value that
// is none leaves the default in force.
func TestElectionSettingsOfATopic(t *testing.T) {
	tm := &term{l: &Loop{opts: Options{UncleanElection: func() bool { return true }, MinISR: func() int { return 2 }}}}
	for _, c := range []struct {
		unclean, min string
		wantUnclean  bool
		wantMin      int
	}{
		{"true", "3", true, 3}, {"false", "1", false, 1}, {" FALSE ", " 4 ", false, 4}, {"True", "0", true, 2}, {"no", "abc", true, 2}, {"", "-1", true, 2}, {"false", "99999999999", false, 2},
	} {
		config := map[string]string{"unclean.leader.election.enable": c.unclean, "min.insync.replicas": c.min}
		if u, m := tm.unclean(config), tm.minISR(config); u != c.wantUnclean || m != c.wantMin {
			t.Errorf("%q, %q: %v, %d, want %v, %d", c.unclean, c.min, u, m, c.wantUnclean, c.wantMin)
		}
	}
}
