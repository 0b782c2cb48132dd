package server

import (
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestMetrics(t *testing.T) {
	reg := new(metric.Registry)
	parked := make(chan *Request, 1)
	g, clk := timed(t, Options{Metrics: reg, Handler: HandlerFunc(func(r *Request) {
		if _, fetch := r.Msg.(*kmsg.FetchRequest); fetch {
			parked <- r
			return
		}
		r.Respond(ok(r))
	})})
	nc := g.dial("L")
	stillServes(t, nc)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 12
	write(t, nc, protocol.AppendRequest(nil, "client", 1, fetch))
	r := <-parked
	eventually(t, "Serve has returned", func() bool { r.Conn.mu.Lock(); defer r.Conn.mu.Unlock(); return r.Conn.serving == nil })
	clk.Advance(3 * time.Second)
	r.Respond(fetch.ResponseKind())
	readFrame(t, nc)
	eventually(t, "counted", func() bool { return g.count.span(fetchConsumer).bytes.Value() > 0 })
	got := map[string]float64{}
	for _, m := range reg.Read() {
		switch name := m.Name.String(); m.Kind {
		case metric.KindSpan:
			got[name+" SumMs"], got[name+" MaxMs"] = float64(m.Sum.Milliseconds()), float64(m.Max.Milliseconds())
		case metric.KindCounter:
			got[name+" Count"] = m.Value
		default:
			got[name+" Value"] = m.Value
		}
	}
	for name, want := range map[string]float64{
		"kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Heartbeat,version=4 Count": 1,
		"kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Fetch,version=12 Count":    1,
		"kafka.network:type=RequestMetrics,name=RemoteTimeMs,request=FetchConsumer MaxMs":         3000,
		"kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch SumMs":                  3000,
		"kafka.network:type=RequestMetrics,name=LocalTimeMs,request=Fetch SumMs":                  0,
		"kafka.server:type=socket-server-metrics,name=connection-count,listener=L Value":          1,
		"kafka.server:type=socket-server-metrics,name=request-total,listener=L Count":             2,
		"kafka.server:type=socket-server-metrics,name=response-total,listener=L Count":            2,
		"kafka.server:type=socket-server-metrics,name=incoming-byte-total,listener=L Count":       float64(len(heartbeat(77)) + len(protocol.AppendRequest(nil, "client", 1, fetch))),
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}
