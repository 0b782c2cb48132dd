package metric

import (
	"testing"
	"time"
)

func TestRegistry(t *testing.T) {
	var r Registry
	in := Name{"kafka.server", "BrokerTopicMetrics", "MessagesInPerSec", "topic=a"}
	r.Counter(in).Add(3)
	r.Counter(in).Add(4)
	r.Span(Name{"kafka.network", "RequestMetrics", "TotalTimeMs", "request=Fetch"}).Observe(2 * time.Millisecond)
	r.Gauge(Name{"kafka.server", "ReplicaManager", "PartitionCount", ""}, func() float64 { return 5 })
	r.CounterFunc(Name{"kafka.server", "ReplicaManager", "IsrShrinksPerSec", ""}, func() int64 { return 2 })
	leo := Name{"kafka.log", "Log", "LogEndOffset", "topic=a,partition=0"}
	r.Source(func(add func(Reading)) { add(Reading{Name: leo, Value: 9}) })
	want := []struct {
		name  string
		kind  Kind
		value float64
	}{
		{"kafka.log:type=Log,name=LogEndOffset,topic=a,partition=0", KindGauge, 9},
		{"kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", KindSpan, 1},
		{"kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=a", KindCounter, 7},
		{"kafka.server:type=ReplicaManager,name=IsrShrinksPerSec", KindCounter, 2},
		{"kafka.server:type=ReplicaManager,name=PartitionCount", KindGauge, 5},
	}
	got := r.Read()
	if len(got) != len(want) {
		t.Fatalf("read %d metrics, want %d: %v", len(got), len(want), got)
	}
	for i, w := range want {
		if got[i].Name.String() != w.name || got[i].Kind != w.kind || got[i].Value != w.value {
			t.Errorf("reading %d: %v %v, want %v", i, got[i].Name, got[i], w)
		}
	}
	if s := got[1]; s.Sum != 2*time.Millisecond || s.Max != 2*time.Millisecond {
		t.Errorf("span: %+v, want 2 ms in all and at most", s)
	}
	r.RemoveTagged("topic=a")
	if n := len(r.Read()); n != 4 {
		t.Errorf("after the topic is gone %d metrics are left, want 4", n)
	}
}

func TestNilCountersCountNothing(t *testing.T) {
	var c *Counter
	var s *Span
	c.Add(1)
	s.Observe(time.Second)
	if c.Value() != 0 {
		t.Errorf("a nil counter counted %d", c.Value())
	}
}
