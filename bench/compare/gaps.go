package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/kbroker/kbroker/bench/gap"
	"github.com/kbroker/kbroker/bench/raw"
	"github.com/kbroker/kbroker/bench/topics"
)

// loss is a row about the loss of a leader.
type loss struct {
	name       string
	title      string
	term       bool // SIGTERM instead of SIGKILL
	controller bool // the leader is the controller, too
	loaded     bool // other partitions have something to do
}

// losses are in the order in which they are measured: those with load last.
var losses = []loss{
	{name: "kill", title: "kill -9 of the leader, idle"},
	{name: "kill-controller", title: "kill -9 of the leader, which is the controller, idle", controller: true},
	{name: "term", title: "SIGTERM of the leader, idle", term: true},
	{name: "kill-loaded", title: "kill -9 of the leader, under load", loaded: true},
	{name: "kill-controller-loaded", title: "kill -9 of the leader, which is the controller, under load", controller: true, loaded: true},
	{name: "term-loaded", title: "SIGTERM of the leader, under load", term: true, loaded: true},
}

func (c *clusters) gapRows() (rows []Row) {
	for _, l := range losses {
		metrics := []metric{{name: "gap in acked produce", unit: "s", digits: 2, less: true, goal: 1},
			{name: "longest", unit: "s", digits: 2, less: true, most: (session + tick + grace).Seconds(), worst: true}}
		if l.term {
			metrics[0].goal, metrics[1].most = 0.5, 0
		}
		rows = append(rows, newRow(l.name, l.title, metrics, c.o.Subjects))
	}
	return rows
}

// loadTopic is what the load goes to.
const loadTopic = "load"

func (c *clusters) measureGaps(ctx context.Context, rows map[string]*Row) error {
	kills := c.scaled(c.o.Kills, c.o.Rounds)
	return c.eachTurn(ctx, settings{cores: bothCores, session: session}, func(k *cluster, nth int) error {
		if err := k.created(ctx, loadTopic, loadPartitions, replicas); err != nil {
			return err
		}
		var load *gap.Load
		defer func() {
			if load != nil {
				load.Stop()
			}
		}()
		for _, l := range losses {
			row := rows[l.name]
			if row == nil {
				continue
			}
			began := time.Now()
			if l.loaded && load == nil {
				var err error
				if load, err = gap.StartLoad(k.seeds(), loadTopic); err != nil {
					return err
				}
				time.Sleep(3 * time.Second) // until it is even
			}
			for range share(kills, c.o.Rounds, nth) {
				length, err := k.lose(ctx, l)
				if err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				row.note(0, k.name, length.Seconds())
				row.note(1, k.name, length.Seconds())
				c.o.Logf("%s: %s: %.3f s", l.name, k.name, length.Seconds())
			}
			row.took(began)
		}
		return nil
	})
}

// bothCores are for brokers whose speed is not what is measured.
const bothCores = "0,1"

// steady is how long acknowledgements flow before a loss, and after it.
const steady = time.Second

// lose ends the leader of a new partition under a paced producer, answers for
// how long there was no acknowledgement, checks that nothing was lost or
// doubled, and brings the broker back.
func (k *cluster) lose(ctx context.Context, l loss) (time.Duration, error) {
	victim, err := k.victim(l.controller)
	if err != nil {
		return 0, err
	}
	k.serial++
	topic := fmt.Sprintf("gap-%d", k.serial)
	ids := []int32{victim.id}
	for _, m := range k.but(victim.id) {
		ids = append(ids, m.id)
	}
	if err := k.created(ctx, topic, 1, replicas, ids); err != nil {
		return 0, err
	}
	p, err := gap.Start(k.seeds(), topic)
	if err != nil {
		return 0, err
	}
	flows := func(after time.Duration) error {
		return until(ctx, func() error {
			since, ok := gap.Flowing(p.Acks(), after)
			if !ok || p.Now()-since < steady {
				return fmt.Errorf("%s: acknowledgements do not flow", topic)
			}
			return nil
		})
	}
	stop := func() (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return p.Stop(ctx)
	}
	err = flows(0)
	// At a moment by chance: a session ends by when its last ping was, and pings have
	// a rhythm that began with the broker.
	time.Sleep(rand.N(session))
	at := p.Now()
	if err == nil {
		if err = victim.lost(ctx, l.term); err == nil {
			err = flows(p.Now())
		}
	}
	length, _ := gap.Longest(p.Acks(), at, p.Now())
	acked, stopErr := stop()
	if err == nil {
		err = stopErr
	}
	if err != nil {
		return 0, err
	}
	if err := k.kept(ctx, topic, acked, victim); err != nil {
		return 0, err
	}
	if err := k.again(ctx, victim); err != nil {
		return 0, err
	}
	if err := k.whole(ctx, 1, topic); err != nil {
		return 0, err
	}
	return length, k.whole(ctx, loadPartitions, loadTopic)
}

// victim is the broker that is to be lost: the controller, or the first that is
// not.
func (k *cluster) victim(controller bool) (*member, error) {
	id, _, err := k.controller()
	if err != nil {
		return nil, err
	}
	if controller {
		return k.member(id), nil
	}
	return k.but(id)[0], nil
}

func (m *member) lost(ctx context.Context, term bool) error {
	if term {
		return m.terminate(ctx)
	}
	m.proc.signal(syscall.SIGKILL)
	<-m.proc.done
	return nil
}

// kept reads the topic from its new leader: as many records as were
// acknowledged, each once.
func (k *cluster) kept(ctx context.Context, topic string, acked int64, lost *member) error {
	t, err := topics.Ensure(ctx, k.but(lost.id)[0].addr, topic, 0, 0)
	if err != nil {
		return err
	}
	got, _, err := raw.Verify(ctx, raw.VerifyOptions{Addr: t.Leader, Topic: topic, Partitions: t.Partitions, MaxBytes: 1 << 20})
	if err != nil {
		return err
	}
	if got.Records != acked {
		return fmt.Errorf("%s: %d records were acknowledged, %d are there", topic, acked, got.Records)
	}
	return nil
}
