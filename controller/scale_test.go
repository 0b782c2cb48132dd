package controller

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

// loaded is a cluster that a new controller has just read: three replicas for
// each partition, spread evenly, nothing acknowledged.
func loaded(brokers, topics, partitions int) *Image {
	im := New(1, 2, Config{Listener: "PLAINTEXT"})
	for id := range cluster.BrokerID(brokers) {
		im.BrokerStarted(scaleBroker(id+1, 1))
	}
	for t := range topics {
		r := Topic{Name: fmt.Sprintf("topic-%04d", t), ID: cluster.TopicID{14: byte(t / 256), 15: byte(t)}, Partitions: map[int32]cluster.Assignment{}}
		r.ID[0] = 1
		for p := range int32(partitions) {
			r.Partitions[p] = cluster.Assignment{Replicas: scaleReplicas(brokers, t, int(p))}
		}
		im.TopicRead(r)
		for p := range int32(partitions) {
			isr := r.Partitions[p].Replicas
			im.StateRead(cluster.TopicPartition{Topic: r.Name, Partition: p}, cluster.LeaderAndISR{Leader: isr[0], ISR: isr, ControllerEpoch: 1})
		}
	}
	return im
}

func scaleBroker(id cluster.BrokerID, epoch cluster.BrokerEpoch) Broker {
	return Broker{ID: id, Epoch: epoch, Endpoints: []Endpoint{{Listener: "PLAINTEXT", Host: "host", Port: 9092}}}
}

func scaleReplicas(brokers, topic, partition int) []cluster.BrokerID {
	var out []cluster.BrokerID
	for i := range 3 {
		out = append(out, cluster.BrokerID(1+(topic*7+partition+i*(1+topic%5))%brokers))
	}
	return out
}

// acknowledge answers everything, until nothing is due.
func acknowledge(im *Image) (writes, sends int) {
	for {
		plan := DecideFor(im, im.TakeDirty(), im.Due())
		if plan.Empty() {
			return writes, sends
		}
		results := make([]Result, len(plan.Writes))
		for i, w := range plan.Writes {
			results[i] = accepted(w)
		}
		im.Settle(plan, results)
		for _, s := range plan.Sends {
			im.Answered(s, Answer{})
		}
		writes += len(plan.Writes)
		sends += len(plan.Sends)
	}
}

// What a plan holds at scale: three requests for each broker after an election
// of the controller, and one write for each replica of a lost broker.
// The benchmarks say how long it takes for 200,000 partitions on 100 brokers.
func TestScale(t *testing.T) {
	im := loaded(20, 100, 100)
	plan := Decide(im)
	if len(plan.Sends) != 60 || len(plan.Writes) != 0 {
		t.Fatalf("%d sends, %d writes", len(plan.Sends), len(plan.Writes))
	}
	// What all are told alike is made once.
	if plan.Sends[2].UpdateMetadata == nil || plan.Sends[2].UpdateMetadata != plan.Sends[59].UpdateMetadata {
		t.Fatal("UpdateMetadata is not shared")
	}
	if !reflect.DeepEqual(DecideFor(im, im.TakeDirty(), im.Due()), plan) {
		t.Fatal("what is due, when it is nearly everything, differs from everything")
	}
	acknowledge(im)
	im.BrokerGone(12)
	writes, sends := acknowledge(im)
	// UpdateMetadata of the live brokers to 19 brokers at once; then LeaderAndIsr
	// to the 15 that shared a partition with it, and UpdateMetadata to all.
	if writes != 1500 || sends != 19+15+19 {
		t.Fatalf("loss of a broker with 1,500 replicas: %d writes, %d sends", writes, sends)
	}
	if !Decide(im).Empty() {
		t.Error("something is left")
	}
}

func BenchmarkWholePlan(b *testing.B) {
	im := loaded(100, 1000, 200)
	for b.Loop() {
		Decide(im)
	}
}

// What a controller does when it has read everything.
func BenchmarkBeginningOfATerm(b *testing.B) {
	im := loaded(100, 1000, 200)
	s := im.TakeDirty()
	for b.Loop() {
		DecideFor(im, s, im.Due())
	}
}

func BenchmarkLossOfOneBroker(b *testing.B) {
	im := loaded(100, 1000, 200)
	acknowledge(im)
	epoch := cluster.BrokerEpoch(1)
	for b.Loop() {
		im.BrokerGone(42)
		DecideFor(im, im.TakeDirty(), im.Due())
		b.StopTimer()
		epoch++
		im.BrokerStarted(scaleBroker(42, epoch))
		acknowledge(im)
		b.StartTimer()
	}
}
