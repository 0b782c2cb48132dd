package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The rows about many partitions, and how large they are.
const (
	createRow   = "create"
	restartRow  = "restart"
	failoverRow = "failover"
	deathRow    = "failover-kill"

	bigTopic = 1000 // partitions
)

func (c *clusters) sizeRows() []Row {
	one := func(name string, goal float64) []metric {
		return []metric{{name: name, unit: "s", digits: 2, less: true, goal: goal}}
	}
	names := c.o.Subjects
	total, factor := c.scaled(c.o.FailoverTotal, 30), c.o.FailoverReplicas
	big := c.scaled(bigTopic, 10)
	return []Row{
		newRow(createRow, fmt.Sprintf("a topic of %d partitions, RF 3", big), one("request to a leader for each in every broker's metadata", 1./8), names),
		newRow(restartRow, fmt.Sprintf("clean restart of a broker with %d replicas", big), one("SIGTERM until back in all ISRs", 1./5), names),
		newRow(failoverRow, fmt.Sprintf("new controller, %d partitions (%d of RF 3, the rest of RF %d)", total, min(total, 2*big), factor),
			one("/controller deleted until a new topic and all partitions are led in every broker's metadata", 1./3), names),
		newRow(deathRow, "the same after kill -9 of the controller, less the session", one("/controller expired until the same", 1./3), names),
	}
}

// measureSizes does all of it in one life of a cluster, in each turn: a topic
// of 1,000 partitions is made, a broker that has nothing else is started again,
// more topics come, the controller changes twice and dies.
func (c *clusters) measureSizes(ctx context.Context, rows map[string]*Row) error {
	big, total := c.scaled(bigTopic, 10), c.scaled(c.o.FailoverTotal, 30)
	note := func(k *cluster, name string, d time.Duration, began time.Time) {
		if row := rows[name]; row != nil {
			row.note(0, k.name, d.Seconds())
			row.took(began)
		}
		c.o.Logf("%s: %s: %.3f s", name, k.name, d.Seconds())
	}
	return c.eachTurn(ctx, settings{cores: bothCores, session: session}, func(k *cluster, _ int) error {
		began := time.Now()
		if err := k.created(ctx, "warm-up", c.scaled(100, 10), replicas); err != nil {
			return err
		}
		if err := k.drop(ctx, "warm-up"); err != nil {
			return err
		}
		took, err := k.make(ctx, "big-0", big, replicas)
		if err != nil {
			return fmt.Errorf("%s: %w", createRow, err)
		}
		note(k, createRow, took, began)
		if rows[restartRow] != nil {
			began = time.Now()
			if took, err = k.restart(ctx, "big-0", big); err != nil {
				return fmt.Errorf("%s: %w", restartRow, err)
			}
			note(k, restartRow, took, began)
		}
		if rows[failoverRow] == nil && rows[deathRow] == nil {
			return nil
		}
		began = time.Now()
		if err := k.fill(ctx, big, total, note); err != nil {
			return err
		}
		for _, how := range []string{failoverRow, failoverRow, deathRow} {
			if rows[how] == nil {
				continue
			}
			if took, err = k.failover(ctx, how == deathRow); err != nil {
				return fmt.Errorf("%s: %w", how, err)
			}
			note(k, how, took, began)
			began = time.Now()
		}
		return nil
	})
}

// fill brings the cluster to so many partitions: a second topic like the first,
// and others with the replicas that were ordered.
func (k *cluster) fill(ctx context.Context, big, total int, note func(*cluster, string, time.Duration, time.Time)) error {
	for i, left := 1, total-big; left > 0; i++ {
		factor, began := replicas, time.Now()
		if i > 1 {
			factor = k.o.FailoverReplicas
		}
		n := min(left, big)
		took, err := k.make(ctx, fmt.Sprintf("big-%d", i), n, factor)
		if err != nil {
			return err
		}
		if left -= n; i == 1 && n == big {
			note(k, createRow, took, began)
		} else {
			k.o.Logf("%s: %d partitions more, RF %d: %.1f s", k.name, n, factor, took.Seconds())
		}
	}
	return nil
}

// make creates a topic and answers the time from the request until every broker
// tells its clients a leader for each partition.
func (k *cluster) make(ctx context.Context, topic string, partitions, factor int) (time.Duration, error) {
	began := time.Now()
	asked := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := k.create(ctx, k.members, topic, partitions, factor)
		if err != nil {
			cancel()
		}
		asked <- err
	}()
	err := k.await(ctx, k.members, []string{topic}, func(r *kmsg.MetadataResponse) error {
		return complete(r.Topics[0], partitions, nil)
	})
	took := time.Since(began)
	return took, errors.Join(<-asked, err)
}

// restart ends a broker that is not the controller as an operator does, starts
// it, and answers the time until all others know it in the ISR of each of its
// partitions again.
func (k *cluster) restart(ctx context.Context, topic string, partitions int) (time.Duration, error) {
	if err := k.whole(ctx, partitions, topic); err != nil {
		return 0, err
	}
	m, err := k.victim(false)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := m.terminate(ctx); err != nil {
		return 0, err
	}
	stopped := time.Since(began)
	if err := k.launch(m); err != nil {
		return 0, err
	}
	err = k.await(ctx, k.members, []string{topic}, func(r *kmsg.MetadataResponse) error {
		if len(r.Brokers) != len(k.members) {
			return fmt.Errorf("%d brokers are known", len(r.Brokers))
		}
		return errors.Join(complete(r.Topics[0], partitions, nil), inSync(r.Topics[0], &m.id))
	})
	k.o.Logf("%s: stopped after %.2f s", m.name, stopped.Seconds())
	return time.Since(began), err
}

// failover takes the controller's znode away, or the controller's life, and
// answers the time from the znode's end until the next controller has told all
// brokers: a topic that was ordered of it is led, and so is every partition
// that has a live replica, in what each broker tells its clients. The brokers
// hear of the new topic after all else.
func (k *cluster) failover(ctx context.Context, kill bool) (time.Duration, error) {
	id, born, err := k.controller()
	if err != nil {
		return 0, err
	}
	live := k.members
	if kill {
		live = k.but(id)
		k.member(id).proc.kill()
	} else if err := k.zk.Delete(k.root+"/controller", -1); err != nil {
		return 0, err
	}
	began := time.Now()
	next := int32(0)
	if err := until(ctx, func() error {
		id, newer, err := k.controller()
		if errors.Is(err, zk.ErrNoNode) && kill {
			kill, began = false, time.Now() // the session has ended
		}
		if err == nil && newer == born {
			err = errors.New("the old controller's session lives")
		}
		next = id
		return err
	}); err != nil {
		return 0, err
	}
	elected := time.Since(began)
	k.serial++
	probe := fmt.Sprintf("probe-%d", k.serial)
	ids, of := []int32{}, []*member{k.member(next)}
	for _, m := range live {
		ids = append(ids, m.id)
	}
	asked := make(chan error, 1)
	go func() { asked <- k.create(ctx, append(of, live...), probe, 1, 0, ids) }()
	err = k.await(ctx, live, []string{probe}, func(r *kmsg.MetadataResponse) error { return complete(r.Topics[0], 1, ids) })
	if err != nil {
		return 0, err
	}
	probed := time.Since(began)
	err = k.await(ctx, live, nil, func(r *kmsg.MetadataResponse) error {
		for _, t := range r.Topics {
			if err := complete(t, 0, ids); err != nil {
				return err
			}
		}
		return nil
	})
	took := time.Since(began)
	k.o.Logf("%s: elected after %.3f s, a new topic after %.3f s, all partitions after %.3f s", k.name, elected.Seconds(), probed.Seconds(), took.Seconds())
	return took, errors.Join(err, <-asked)
}
