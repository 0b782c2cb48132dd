package shards

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/delay"
	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/logstore"
	"github.com/kbroker/kbroker/partition/replica"
	"github.com/rs/zerolog"
)

const topic = "__test_offsets"

// What the machine of the tests is asked.
type (
	put   struct{ key, value string } // a record; replies with what it replaced
	drop  struct{ key string }        // a tombstone
	get   struct{ key string }        // read only
	later struct{ at time.Time }      // replied to by Expire at a time
	tell  struct{ what string }       // an event: a record under "told"
	check struct{ f func() }          // runs f within Handle
	beat  struct{}                    // replied to without a wait
)

// machine keeps the last value of each key, and a diary of all that it was
// handed. Commits of open transactions wait for their marker.
type machine struct {
	values  map[string]string
	pending map[cluster.ProducerID][]coordinator.Entry
	diary   []string // of durable state: what a replay has to repeat
	loaded  time.Time
	expired []time.Time
	waits   []waits
	onApply func()
}

type waits struct {
	token coordinator.Token
	at    time.Time
}

func newMachine() *machine {
	return &machine{values: map[string]string{}, pending: map[cluster.ProducerID][]coordinator.Entry{}}
}

func (m *machine) Handle(now time.Time, r coordinator.Request) coordinator.Result {
	reply := func(x any) []coordinator.Reply {
		if r.Token == coordinator.NoToken {
			return nil
		}
		return []coordinator.Reply{{Token: r.Token, Response: x}}
	}
	switch q := r.Msg.(type) {
	case put:
		return coordinator.Result{Records: []coordinator.Record{{Key: []byte(q.key), Value: []byte(q.value)}}, Replies: reply(m.values[q.key])}
	case drop:
		return coordinator.Result{Records: []coordinator.Record{{Key: []byte(q.key)}}, Replies: reply(m.values[q.key])}
	case get:
		return coordinator.Result{Replies: reply(m.values[q.key])}
	case tell:
		if m.loaded.IsZero() {
			panic("told before the end of the replay")
		}
		return coordinator.Result{Records: []coordinator.Record{{Key: []byte("told"), Value: []byte(q.what)}}}
	case later:
		m.waits = append(m.waits, waits{r.Token, q.at})
		return coordinator.Result{}
	case beat:
		return coordinator.Result{Replies: reply("beat")}
	case check:
		q.f()
		return coordinator.Result{Replies: reply(nil)}
	}
	panic(fmt.Sprintf("asked %T", r.Msg))
}

// Answer knows two answers; one of them sets a deadline.
func (m *machine) Answer(_ time.Time, msg any) (any, bool) {
	switch q := msg.(type) {
	case beat:
		return "at once", true
	case later:
		m.waits = append(m.waits, waits{coordinator.NoToken, q.at})
		return "armed", true
	}
	return nil, false
}

func (m *machine) Apply(e coordinator.Entry) error {
	if m.onApply != nil {
		m.onApply()
	}
	if len(e.Key) == 0 {
		return errors.New("no key")
	}
	m.diary = append(m.diary, fmt.Sprintf("%d %d %d/%d %s=%s", e.Offset, e.TimestampMs, e.Producer, e.ProducerEpoch, e.Key, valueText(e.Value)))
	if e.Producer != cluster.NoProducerID {
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		m.pending[e.Producer] = append(m.pending[e.Producer], e)
		return nil
	}
	m.keep(e)
	return nil
}

func valueText(v []byte) string {
	if v == nil {
		return "null"
	}
	return string(v)
}

func (m *machine) keep(e coordinator.Entry) {
	if e.Value == nil {
		delete(m.values, string(e.Key))
		return
	}
	m.values[string(e.Key)] = string(e.Value)
}

func (m *machine) ApplyMarker(p cluster.ProducerID, epoch cluster.ProducerEpoch, committed bool) {
	m.diary = append(m.diary, fmt.Sprintf("marker %d/%d %v", p, epoch, committed))
	if committed {
		for _, e := range m.pending[p] {
			m.keep(e)
		}
	}
	delete(m.pending, p)
}

func (m *machine) Loaded(now time.Time) coordinator.Result {
	m.loaded = now
	return coordinator.Result{}
}

func (m *machine) NextDeadline() (at time.Time, ok bool) {
	for _, w := range m.waits {
		if !ok || w.at.Before(at) {
			at, ok = w.at, true
		}
	}
	return at, ok
}

func (m *machine) Expire(now time.Time) (res coordinator.Result) {
	m.expired = append(m.expired, now)
	m.waits = slices.DeleteFunc(m.waits, func(w waits) bool {
		if w.at.After(now) {
			return false
		}
		if w.token != coordinator.NoToken {
			res.Replies = append(res.Replies, coordinator.Reply{Token: w.token, Response: "expired"})
		}
		return true
	})
	return res
}

// rig is a broker 1 that hosts partitions of the topic, with replicas 1 and 2.
type rig struct {
	t        testing.TB
	clock    *clock.Manual
	store    *logstore.Store
	host     *replica.Host
	timer    *delay.Timer
	set      *Set
	cfg      config.Log
	epochs   map[int32]cluster.LeaderEpoch
	machines map[int32][]*machine // made for each partition, the last one being that of its shard
	onApply  func()               // of new machines
	broken   bool                 // the disk is made to fail
}

// bubble runs a test on a rig whose goroutines have all to end.
func bubble(t *testing.T, f func(*testing.T, *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, vfs.NewMem())
		defer r.end()
		f(t, r)
	})
}

func newRig(t testing.TB, fs vfs.FS) *rig {
	r := &rig{t: t, clock: clock.NewManual(time.Unix(1_700_000_000, 0)), cfg: logstore.DefaultLogConfig(),
		epochs: map[int32]cluster.LeaderEpoch{}, machines: map[int32][]*machine{}}
	store, err := logstore.Open(logstore.Options{Dirs: []string{"/data"}, FS: fs, Clock: r.clock, Logger: zerolog.Nop(), BrokerID: 1,
		ClusterID: "test", TopicConfig: func(string) config.Log { return r.cfg }})
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	r.host = replica.NewHost(replica.Options{Self: 1, Store: store, FenceAfter: 4 * time.Second, Clock: r.clock, Logger: zerolog.Nop(),
		TopicConfig: func(string) config.Log { return r.cfg }})
	r.host.LiveBrokersChanged([]cluster.BrokerID{1, 2})
	r.timer = delay.NewTimer(r.clock)
	r.open()
	return r
}

// open makes the set, as a broker does at its start.
func (r *rig) open() {
	r.set = New(r.options())
}

func (r *rig) options() Options {
	return Options{Topic: topic, Host: r.host, Timer: r.timer, Clock: r.clock, Logger: zerolog.Nop(),
		CommitTimeout: 5 * time.Second, LoadBuffer: 5 << 20,
		Prompt: func(response any) bool { return response == "beat" },
		New: func(p int32) coordinator.Machine {
			m := newMachine()
			m.onApply = r.onApply
			r.machines[p] = append(r.machines[p], m)
			return m
		}}
}

func (r *rig) end() {
	r.set.Close()
	r.timer.Close()
	if err := r.store.Close(); err != nil && !r.broken {
		r.t.Error(err)
	}
}

func (r *rig) order(p int32, leader cluster.BrokerID, isr ...cluster.BrokerID) {
	r.t.Helper()
	r.epochs[p]++
	errs, err := r.host.ApplyLeaderAndISR(1, []replica.RoleChange{{TP: tp(p),
		State:      cluster.LeaderAndISR{Leader: leader, LeaderEpoch: r.epochs[p], ISR: isr},
		Assignment: cluster.Assignment{Replicas: []cluster.BrokerID{1, 2}}}})
	if err != nil || errs[0] != nil {
		r.t.Fatal(err, errs)
	}
}

func tp(p int32) cluster.TopicPartition { return cluster.TopicPartition{Topic: topic, Partition: p} }

// lead makes the broker lead a partition and waits for its shard.
func (r *rig) lead(p int32, isr ...cluster.BrokerID) {
	r.t.Helper()
	r.order(p, 1, isr...)
	synctest.Wait()
}

func (r *rig) replica(p int32) *replica.Replica {
	got, ok := r.host.Replica(tp(p))
	if !ok {
		r.t.Fatal("no replica of", tp(p))
	}
	return got
}

// replicated lets the follower have all there is.
func (r *rig) replicated(p int32) {
	x := r.replica(p)
	v := x.View()
	x.FollowerFetched(replica.Follower{ID: 2, Epoch: cluster.NoBrokerEpoch}, v.LeaderEpoch, v.LEO, v.LogStart)
}

func (r *rig) machine(p int32) *machine { return r.machines[p][len(r.machines[p])-1] }

// asked is a request on its way.
type asked struct {
	t     testing.TB
	times int
	got   any
	err   error
}

func (a *asked) done(got any, err error) {
	a.times++
	a.got, a.err = got, err
}

func (r *rig) ask(p int32, msg any) *asked {
	a := &asked{t: r.t}
	_, readOnly := msg.(get)
	r.set.Submit(p, coordinator.Request{Msg: msg, ReadOnly: readOnly}, a.done)
	return a
}

func (a *asked) waits() {
	a.t.Helper()
	if a.times != 0 {
		a.t.Fatalf("answered %d times: %v, %v", a.times, a.got, a.err)
	}
}

func (a *asked) is(want any) {
	a.t.Helper()
	if a.times != 1 || a.err != nil || a.got != want {
		a.t.Fatalf("answered %d times: %v, %v; want %v", a.times, a.got, a.err, want)
	}
}

func (a *asked) fails(want error) {
	a.t.Helper()
	if a.times != 1 || !errors.Is(a.err, want) || a.got != nil {
		a.t.Fatalf("answered %d times: %v, %v; want %v", a.times, a.got, a.err, want)
	}
}

// same compares two diaries.
func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
