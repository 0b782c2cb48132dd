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
	want := []struct {
		name, field string
		value       float64
	}{
		{"kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", "Count", 1},
		{"kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", "MaxMs", 2},
		{"kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", "SumMs", 2},
		{"kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=a", "Count", 7},
		{"kafka.server:type=ReplicaManager,name=PartitionCount", "Value", 5},
	}
	got := r.Read()
	if len(got) != len(want) {
		t.Fatalf("read %d numbers, want %d: %v", len(got), len(want), got)
	}
	for i, w := range want {
		if got[i].Name.String() != w.name || got[i].Field != w.field || got[i].Value != w.value {
			t.Errorf("reading %d: %v %s %v, want %v", i, got[i].Name, got[i].Field, got[i].Value, w)
		}
	}
	r.RemoveTagged("topic=a")
	if n := len(r.Read()); n != 4 {
		t.Errorf("after the topic is gone %d numbers are left, want 4", n)
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
