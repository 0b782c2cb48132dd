package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// run is one drill under way. What luck decides comes from rng alone, in the
// same order for the same seed; who leads is up to the cluster.
type run struct {
	ctx   context.Context
	c     *cluster
	l     *load
	rng   *rand.Rand
	began time.Time
	what  []string // what was done, in words
}

// drill is one way to hurt a cluster. It returns an error when the cluster did
// not go on as it must while it was hurt.
type drill struct {
	name  string
	about string
	needs need
	do    func(*run) error
}

// need is what a drill asks of the machine.
type need int

const (
	nothing need = iota
	namespaces
	tracing
)

var drills = []drill{
	{"kill", "kill -9 of a broker, started again at once or once the others go on", nothing, killOne},
	{"term", "SIGTERM of a broker, started again once the others go on", nothing, termOne},
	{"stop", "SIGSTOP of a broker past its session, then SIGCONT", nothing, stopOne},
	{"expiry", "two sessions of a broker expire in a row, by SIGSTOP", nothing, expireTwice},
	{"wipe", "a broker is killed or stopped, and comes back with an empty disk", nothing, wipeOne},
	{"tail-cut", "a broker is killed and loses the ends of its logs from anywhere behind the last fsync, as by a loss of power", nothing, tailCut},
	{"deep-cut", "the same, from anywhere in the last segment", nothing, deepCut},
	{"zookeeper-kill", "ZooKeeper is killed, stays away for longer than a session, and comes back", nothing, zookeeperKill},
	{"zookeeper-stop", "ZooKeeper stands still for longer than a session", nothing, zookeeperStop},
	{"rolling", "every broker is stopped and started in turn", nothing, rolling},
	{"two", "two brokers at once: killed, stopped, standing still, or one of each", nothing, two},
	{"kill-all", "all brokers are killed at once", nothing, killAllBrokers},
	{"kill-zookeeper", "ZooKeeper and a broker are killed at once", nothing, killWithZooKeeper},
	{"cut-leader", "a leader is cut off from the brokers and ZooKeeper, not from clients", namespaces, cutLeader},
	{"cut-all", "a leader is cut off from everybody", namespaces, cutAll},
	{"cut-controller", "the controller is cut off from the brokers and ZooKeeper", namespaces, cutController},
	{"cut-one-way", "a leader hears the other brokers no more, or they do not hear it", namespaces, cutOneWay},
	{"cut-zookeeper", "a broker is cut off from ZooKeeper for longer than a session", namespaces, cutZooKeeper},
	{"cut-zookeeper-twice", "the same, twice in a row with a moment in between", namespaces, cutZooKeeperTwice},
	{"disk-full", "a broker's disk (tmpfs) fills up; with room again it is started anew", namespaces, diskFull},
	{"fsync-error", "fsync fails with EIO in a broker (strace); it is started anew", tracing, fsyncError},
}

func (r *run) say(format string, args ...any) {
	r.what = append(r.what, fmt.Sprintf("%.1f s ", time.Since(r.began).Seconds())+fmt.Sprintf(format, args...))
}

// describe is a broker with what it is just now.
func (r *run) describe(m *member) string {
	var is []string
	if now, err := r.c.controller(); err == nil && now == m {
		is = append(is, "controller")
	}
	leads := 0
	for p := range r.l.h.partitions {
		if now, err := r.c.leader(r.l.topic, p); err == nil && now == m {
			leads++
		}
	}
	is = append(is, fmt.Sprintf("leads %d of %d", leads, r.l.h.partitions))
	return fmt.Sprintf("%s (%s)", m, strings.Join(is, ", "))
}

// leader is the leader of a partition that luck picks.
func (r *run) leader() (*member, error) {
	return r.c.leader(r.l.topic, r.rng.IntN(r.l.h.partitions))
}

// target is a leader, the controller, or any broker, as luck has it.
func (r *run) target() (*member, error) {
	kind, any := r.rng.IntN(3), r.c.members[r.rng.IntN(len(r.c.members))]
	leader, err := r.leader()
	switch {
	case err != nil:
		return nil, err
	case kind == 0:
		return leader, nil
	case kind == 1:
		return r.c.controller()
	}
	return any, nil
}

func (r *run) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)+1))
}

// pastSession is a time after which a silent session has ended for sure.
func (r *run) pastSession() time.Duration {
	return r.c.o.session + r.between(1500*time.Millisecond, 5*time.Second)
}

func (r *run) pause(d time.Duration) error { return pause(r.ctx, d) }

// goesOn wants acks everywhere although something is wrong: within a session and
// the time that clients need to find out.
func (r *run) goesOn() error { return r.goesOnBut() }

// goesOnBut is goesOn with some writers excused.
func (r *run) goesOnBut(excused ...string) error {
	if err := r.l.flows(r.ctx, r.c.o.session+r.c.o.heal/2, excused...); err != nil {
		return fmt.Errorf("while it was hurt: %w", err)
	}
	r.say("acks everywhere")
	return nil
}

func (r *run) launch(m *member) error {
	r.say("start of %s", m)
	return r.c.launch(r.ctx, m)
}

// each does the steps in order until one fails.
func each(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func killOne(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	atOnce, wait := r.rng.IntN(3) == 0, r.between(0, 3*time.Second)
	r.say("kill -9 of %s", r.describe(m))
	m.proc.kill()
	if !atOnce {
		if err := each(r.goesOn, func() error { return r.pause(wait) }); err != nil {
			return err
		}
	}
	return r.launch(m)
}

func (r *run) terminate(m *member) error {
	r.say("SIGTERM to %s", r.describe(m))
	if err := r.c.terminate(m); err != nil {
		return err
	}
	r.say("it ended")
	return nil
}

func termOne(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	wait := r.between(0, 5*time.Second)
	return each(func() error { return r.terminate(m) }, r.goesOn, func() error { return r.pause(wait) }, func() error { return r.launch(m) })
}

// still has a broker stand still for a time; the others go on meanwhile.
func (r *run) still(m *member, d time.Duration) error {
	r.say("SIGSTOP to %s for %v", r.describe(m), d.Round(100*time.Millisecond))
	m.proc.signal(syscall.SIGSTOP)
	defer m.proc.signal(syscall.SIGCONT)
	until := time.Now().Add(d)
	if err := r.goesOn(); err != nil {
		return err
	}
	return r.pause(time.Until(until))
}

func stopOne(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	if err := r.still(m, r.pastSession()); err != nil {
		return err
	}
	r.say("SIGCONT")
	return nil
}

func expireTwice(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	first, between, second := r.pastSession(), r.between(0, 2*time.Second), r.pastSession()
	return each(func() error { return r.still(m, first) }, func() error { return r.pause(between) }, func() error { return r.still(m, second) })
}

func wipeOne(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	killed, wait := r.rng.IntN(2) == 0, r.between(0, 4*time.Second)
	if killed {
		r.say("kill -9 of %s", r.describe(m))
		m.proc.kill()
	} else if err := r.terminate(m); err != nil {
		return err
	}
	if err := emptyDirectory(m.data()); err != nil {
		return err
	}
	r.say("its disk is empty")
	if r.rng.IntN(2) == 0 { // at once otherwise
		if err := each(r.goesOn, func() error { return r.pause(wait) }); err != nil {
			return err
		}
	}
	return r.launch(m)
}

func (r *run) zookeeperAway() time.Duration { return r.between(r.c.o.session, 3*r.c.o.session) }

func zookeeperKill(r *run) error {
	away := r.zookeeperAway()
	r.say("kill -9 of ZooKeeper for %v", away.Round(100*time.Millisecond))
	r.c.zkProc.kill()
	until := time.Now().Add(away)
	if err := each(r.goesOn, func() error { return r.pause(time.Until(until)) }, r.goesOn); err != nil {
		return err
	}
	r.say("start of ZooKeeper")
	return r.c.startZooKeeper(r.ctx)
}

func zookeeperStop(r *run) error {
	away := r.zookeeperAway()
	r.say("SIGSTOP to ZooKeeper for %v", away.Round(100*time.Millisecond))
	r.c.zkProc.signal(syscall.SIGSTOP)
	defer r.c.zkProc.signal(syscall.SIGCONT)
	until := time.Now().Add(away)
	return each(r.goesOn, func() error { return r.pause(time.Until(until)) }, r.goesOn)
}

func rolling(r *run) error {
	for _, i := range r.rng.Perm(len(r.c.members)) {
		m := r.c.members[i]
		err := each(func() error { return r.terminate(m) }, func() error { return r.launch(m) }, r.healed)
		if err != nil {
			return err
		}
	}
	return nil
}

// healed waits until all is as it should be.
func (r *run) healed() error {
	err := eventually(r.ctx, r.c.o.heal, "the cluster heals", func() error { return r.c.whole(r.ctx, r.l.topic, r.l.h.partitions) })
	if err != nil {
		return err
	}
	r.say("all ISRs are full")
	return nil
}

// two brokers are hurt at once: nothing can be acked then, with two of three
// required, and nothing that was acked may be lost.
func two(r *run) error {
	order := r.rng.Perm(len(r.c.members))
	a, b := r.c.members[order[0]], r.c.members[order[1]]
	ways := []func(*member) error{
		func(m *member) error { m.proc.kill(); return nil },
		func(m *member) error { m.proc.signal(syscall.SIGTERM); return nil },
		func(m *member) error { m.proc.signal(syscall.SIGSTOP); return nil },
	}
	names := []string{"kill -9", "SIGTERM", "SIGSTOP"}
	i, j, delay, away := r.rng.IntN(3), r.rng.IntN(3), r.between(0, 2*time.Second), r.between(0, 2*r.c.o.session)
	r.say("%s to %s", names[i], r.describe(a))
	if err := each(func() error { return ways[i](a) }, func() error { return r.pause(delay) }); err != nil {
		return err
	}
	r.say("%s to %s", names[j], r.describe(b))
	if err := each(func() error { return ways[j](b) }, func() error { return r.pause(away) }); err != nil {
		return err
	}
	for _, m := range []*member{a, b} {
		m.proc.signal(syscall.SIGCONT)
	}
	for k, m := range []*member{a, b} {
		if way := []int{i, j}[k]; way == 2 {
			r.say("SIGCONT to %s", m)
			continue
		}
		// A controlled shutdown may wait for a controller that is away.
		if !m.proc.await(r.c.o.heal) {
			return fmt.Errorf("%s did not end within %v", m, r.c.o.heal)
		}
		if err := r.launch(m); err != nil {
			return err
		}
	}
	return nil
}

func killAllBrokers(r *run) error {
	r.say("kill -9 of all brokers")
	for _, m := range r.c.members {
		m.proc.signal(syscall.SIGKILL)
	}
	for _, m := range r.c.members {
		m.proc.kill()
	}
	if err := r.pause(r.between(0, 2*r.c.o.session)); err != nil {
		return err
	}
	for _, i := range r.rng.Perm(len(r.c.members)) {
		if err := r.launch(r.c.members[i]); err != nil {
			return err
		}
	}
	return nil
}

func killWithZooKeeper(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	away, before := r.between(0, 2*r.c.o.session), r.rng.IntN(2) == 0
	r.say("kill -9 of ZooKeeper and of %s", r.describe(m))
	r.c.zkProc.kill()
	m.proc.kill()
	if err := r.pause(away); err != nil {
		return err
	}
	if before && m.kind != "kafka" { // which gives up without ZooKeeper
		if err := r.launch(m); err != nil {
			return err
		}
	}
	r.say("start of ZooKeeper")
	if err := r.c.startZooKeeper(r.ctx); err != nil {
		return err
	}
	if before && m.kind != "kafka" {
		return nil
	}
	return each(r.goesOn, func() error { return r.launch(m) })
}

// cut has each of some places lose what comes from some others, until the
// returned function is called.
func (r *run) cut(pairs ...[2]place) (mend func() error, err error) {
	mend = func() error {
		var errs []error
		for _, p := range pairs {
			errs = append(errs, p[0].take(p[1]))
		}
		return errors.Join(errs...)
	}
	for _, p := range pairs {
		if err := p[0].drop(p[1]); err != nil {
			return mend, err
		}
	}
	return mend, nil
}

// both are the two directions between a place and some others.
func both(at place, from ...place) (pairs [][2]place) {
	for _, f := range from {
		pairs = append(pairs, [2]place{at, f}, [2]place{f, at})
	}
	return pairs
}

// cutFor cuts for a time; the others go on meanwhile. kcat need not: it asks for
// metadata at the one broker that it is connected to, and if that is the one that
// is cut off it is told that nothing has changed.
func (r *run) cutFor(d time.Duration, what string, pairs ...[2]place) error {
	r.say("%s for %v", what, d.Round(100*time.Millisecond))
	mend, err := r.cut(pairs...)
	if err == nil {
		until := time.Now().Add(d)
		err = each(func() error { return r.goesOnBut("kcat") }, func() error { return r.pause(time.Until(until)) })
	}
	r.say("the network is whole")
	return errors.Join(err, mend())
}

func (r *run) brokersAndZooKeeper(but *member) []place {
	return append(places(r.c.others(but)), r.c.zkAt)
}

func cutLeader(r *run) error {
	m, err := r.leader()
	if err != nil {
		return err
	}
	return r.cutFor(r.pastSession(), r.describe(m)+" is cut off from brokers and ZooKeeper", both(m.at, r.brokersAndZooKeeper(m)...)...)
}

func cutAll(r *run) error {
	m, err := r.leader()
	if err != nil {
		return err
	}
	pairs := append(both(m.at, r.brokersAndZooKeeper(m)...), [2]place{m.at, hub})
	return r.cutFor(r.pastSession(), r.describe(m)+" is cut off from everybody", pairs...)
}

func cutController(r *run) error {
	m, err := r.c.controller()
	if err != nil {
		return err
	}
	return r.cutFor(r.pastSession(), r.describe(m)+" is cut off from brokers and ZooKeeper", both(m.at, r.brokersAndZooKeeper(m)...)...)
}

func cutOneWay(r *run) error {
	m, err := r.leader()
	if err != nil {
		return err
	}
	var pairs [][2]place
	unheard, d := r.rng.IntN(2) == 0, r.pastSession()
	for _, other := range places(r.c.others(m)) {
		if unheard {
			pairs = append(pairs, [2]place{other, m.at})
		} else {
			pairs = append(pairs, [2]place{m.at, other})
		}
	}
	what := "does not hear the others"
	if unheard {
		what = "is not heard by the others"
	}
	r.say("%s %s for %v", r.describe(m), what, d.Round(100*time.Millisecond))
	// It keeps its session, and so what it leads; with no other in sync nothing is acked there.
	mend, err := r.cut(pairs...)
	if err == nil {
		err = r.pause(d)
	}
	r.say("the network is whole")
	return errors.Join(err, mend())
}

func cutZooKeeper(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	return r.cutFor(r.pastSession(), r.describe(m)+" is cut off from ZooKeeper", both(m.at, r.c.zkAt)...)
}

func cutZooKeeperTwice(r *run) error {
	m, err := r.target()
	if err != nil {
		return err
	}
	between := r.between(500*time.Millisecond, 3*time.Second)
	first, second := r.pastSession(), r.pastSession()
	once := func(d time.Duration) func() error {
		return func() error { return r.cutFor(d, r.describe(m)+" is cut off from ZooKeeper", both(m.at, r.c.zkAt)...) }
	}
	return each(once(first), func() error { return r.pause(between) }, once(second))
}
