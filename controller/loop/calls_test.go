package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAllocateProducerIDs(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l1, c := contender(t, f1)
	c.await(t, "true 1")
	l2, _ := contender(t, f2)
	f2.awaitLive(1, 2)
	ctx := context.Background()
	for i, b := range []*fake{f1, f2, f1} {
		start, n, err := l1.AllocateProducerIDs(ctx, b.id, b.epoch)
		if err != nil || start != int64(i)*1000 || n != 1000 {
			t.Fatalf("block %d: %d, %d, %v", i, start, n, err)
		}
	}
	block, _, found, err := zkmeta.GetProducerIDBlock(ctx, f1.session())
	if err != nil || !found || block != (zkmeta.ProducerIDBlock{Broker: 1, First: 2000, Last: 2999}) {
		t.Fatalf("%+v, %v, %v", block, found, err)
	}
	for _, bad := range []struct {
		id    cluster.BrokerID
		epoch cluster.BrokerEpoch
		want  error
	}{{1, f1.epoch - 1, ErrStaleBrokerEpoch}, {1, f1.epoch + 1, ErrStaleBrokerEpoch}, {1, -1, ErrStaleBrokerEpoch}, {9, 1, ErrUnknownBroker}} {
		if _, _, err := l1.AllocateProducerIDs(ctx, bad.id, bad.epoch); !errors.Is(err, bad.want) {
			t.Errorf("broker %d epoch %d: %v", bad.id, bad.epoch, err)
		}
	}
	if _, _, err := l2.AllocateProducerIDs(ctx, 2, f2.epoch); !errors.Is(err, ErrNotController) {
		t.Errorf("not the controller: %v", err)
	}
}

func alterRequest(f *fake, id cluster.TopicID, leaderEpoch, version int32, isr ...int32) *kmsg.AlterPartitionRequest {
	r := kmsg.NewPtrAlterPartitionRequest()
	r.Version, r.BrokerID, r.BrokerEpoch = 3, int32(f.id), int64(f.epoch)
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.LeaderEpoch, p.PartitionEpoch = leaderEpoch, version
	for _, b := range isr {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID = b
		p.NewEpochISR = append(p.NewEpochISR, m)
	}
	r.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: id, Partitions: []kmsg.AlterPartitionRequestTopicPartition{p}}}
	return r
}

func alterText(r *kmsg.AlterPartitionResponse) string {
	if r.ErrorCode != 0 || len(r.Topics) == 0 {
		return fmt.Sprintf("error %d", r.ErrorCode)
	}
	p := r.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return fmt.Sprintf("partition error %d", p.ErrorCode)
	}
	return fmt.Sprintf("leader %d epoch %d isr %v v%d", p.LeaderID, p.LeaderEpoch, p.ISR, p.PartitionEpoch)
}

func TestAlterPartition(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	l2, _ := contender(t, f2)
	id := createTopic(t, f1.session(), "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.awaitLeader(tpOf("a", 0), 2, 0)
	stale := alterRequest(f2, id, 0, 0, 2)
	stale.BrokerEpoch--
	for _, step := range []struct {
		what string
		req  *kmsg.AlterPartitionRequest
		want string
	}{
		{"shrink", alterRequest(f2, id, 0, 0, 2), "leader 2 epoch 0 isr [2] v1"},
		{"the same again", alterRequest(f2, id, 0, 0, 2), "leader 2 epoch 0 isr [2] v1"},
		{"expand on the old version", alterRequest(f2, id, 0, 0, 2, 1), "partition error 95"},
		{"expand", alterRequest(f2, id, 0, 1, 2, 1), "leader 2 epoch 0 isr [2 1] v2"},
		{"newer version", alterRequest(f2, id, 0, 3, 2), "partition error 41"},
		{"not the leader", alterRequest(f1, id, 0, 2, 1), "partition error 42"},
		{"dead member", alterRequest(f2, id, 0, 2, 2, 3), "partition error 42"},
		{"unknown topic", alterRequest(f2, cluster.TopicID{1}, 0, 2, 2), "partition error 100"},
		{"stale broker epoch", stale, "error 77"},
	} {
		resp, err := l.AlterPartition(context.Background(), step.req)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := alterText(resp); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
	f1.await("the last ISR", func() bool { return fmt.Sprint(f1.meta[tpOf("a", 0)].ISR) == "[2 1]" })
	resp, err := l2.AlterPartition(context.Background(), alterRequest(f2, id, 0, 2, 2))
	if err != nil || alterText(resp) != "error 41" {
		t.Errorf("not the controller: %v, %v", resp, err)
	}
	for _, line := range f2.lines() {
		if line == "LeaderAndIsr a-0 leader=2 epoch=0 isr=[2] v1 new=false: 11" {
			t.Error("a mere change of the ISR was sent by LeaderAndIsr")
		}
	}
}

func TestElectLeaders(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	createTopic(t, s, "a", partitions(on(2, 1), on(1), on(2)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.die()
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f1.await("a-2 without a leader", func() bool { return f1.meta[tpOf("a", 2)].Leader == -1 })
	ctx := context.Background()
	all := []cluster.TopicPartition{tpOf("a", 0), tpOf("a", 1), tpOf("a", 2), tpOf("a", 7)}
	check := func(kind controller.Election, want map[cluster.TopicPartition]int16) {
		t.Helper()
		elected, err := l.ElectLeaders(ctx, kind, all)
		must(t, err)
		got := map[cluster.TopicPartition]int16{}
		for tp, e := range elected {
			got[tp] = e.Code
		}
		if !maps.Equal(got, want) {
			t.Errorf("election %d: %v, want %v", kind, got, want)
		}
	}
	check(controller.PreferredElection, map[cluster.TopicPartition]int16{all[0]: 80, all[1]: 84, all[2]: 80, all[3]: 3})
	check(controller.UncleanElection, map[cluster.TopicPartition]int16{all[0]: 84, all[1]: 84, all[2]: 83, all[3]: 3})

	f2 = newFake(t, m, 2)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	st := stateOf(t, s, tpOf("a", 0))
	resp, err := l.AlterPartition(ctx, alterRequest(f1, f1.topicID("a"), int32(st.LeaderEpoch), int32(st.ZKVersion), 1, 2))
	if err != nil || alterText(resp) != "leader 1 epoch 1 isr [1 2] v2" {
		t.Fatalf("%v, %v", alterText(resp), err)
	}
	check(controller.PreferredElection, map[cluster.TopicPartition]int16{all[0]: 0, all[1]: 84, all[2]: 84, all[3]: 3})
	f2.awaitLeader(tpOf("a", 0), 2, 2)
}

// The znode of the old tools does the same.
func TestPreferredElectionZnode(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	id := createTopic(t, s, "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.die()
	f1.awaitLeader(tpOf("a", 0), 1, 1)
	f2 = newFake(t, m, 2)
	f2.awaitLeader(tpOf("a", 0), 1, 1)
	_, err := l.AlterPartition(context.Background(), alterRequest(f1, id, 1, 1, 1, 2))
	must(t, err)
	for i, epoch := range []cluster.LeaderEpoch{2, 2} { // the second time it leads already
		events, stop := f1.store.Subscribe()
		must(t, zkmeta.CreateWithParents(context.Background(), s, zkmeta.PreferredElectionPath, zkmeta.EncodePreferredElection([]cluster.TopicPartition{tpOf("a", 0), tpOf("zz", 3)})))
		awaitGone(t, s, zkmeta.PreferredElectionPath, events)
		stop()
		f2.awaitLeader(tpOf("a", 0), 2, epoch)
		_ = i
	}
}

func TestUncleanElection(t *testing.T) {
	m := ensemble(t)
	f1, f2 := newFake(t, m, 1), newFake(t, m, 2)
	l, c := contender(t, f1)
	c.await(t, "true 1")
	s := f1.session()
	ctx := context.Background()
	id := createTopic(t, s, "a", partitions(on(2, 1)))
	f1.awaitLeader(tpOf("a", 0), 2, 0)
	f2.awaitLeader(tpOf("a", 0), 2, 0)
	_, err := l.AlterPartition(ctx, alterRequest(f2, id, 0, 0, 2))
	must(t, err)
	f2.die()
	f1.await("no leader", func() bool { return f1.meta[tpOf("a", 0)].Leader == -1 })
	// The topic's configs are watched from then on.
	path := zkmeta.ConfigEntityPath(zkmeta.TopicConfigs, "a")
	must(t, zkmeta.CreateWithParents(ctx, s, path, zkmeta.EncodeEntityConfig(map[string]string{"unclean.leader.election.enable": "true"})))
	f1.awaitLeader(tpOf("a", 0), 1, 2)
	if st := stateOf(t, s, tpOf("a", 0)); st.Recovery != cluster.Recovering || fmt.Sprint(st.ISR) != "[1]" {
		t.Errorf("%+v", st)
	}
}

func TestControlledShutdownRefusals(t *testing.T) {
	f, l, _ := lone(t)
	ctx := context.Background()
	if _, err := l.ControlledShutdown(ctx, 9, 1); !errors.Is(err, ErrBrokerNotAvailable) {
		t.Error(err)
	}
	if _, err := l.ControlledShutdown(ctx, 1, f.epoch-1); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Error(err)
	}
	createTopic(t, f.session(), "a", partitions(on(1)))
	f.awaitLeader(tpOf("a", 0), 1, 0)
	left, err := l.ControlledShutdown(ctx, 1, f.epoch)
	if err != nil || fmt.Sprint(left) != "[a-0]" {
		t.Errorf("a lone broker keeps what it leads: %v, %v", left, err)
	}
	if st := stateOf(t, f.session(), tpOf("a", 0)); st.Leader != 1 || st.LeaderEpoch != 0 {
		t.Errorf("%+v", st)
	}
	// What it keeps is not waited for.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.AwaitAcknowledged(ctx); err != nil {
		t.Error(err)
	}
}
