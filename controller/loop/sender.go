package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sender carries sends to one incarnation of a broker, one in flight, in order.
// What fails is reported; the decision goroutine lets the sender rest and then
// gives it what is due by then. It lives until its broker is gone or the term
// ends, and so does its goroutine.
type sender struct {
	l      *Loop
	t      *term
	ctx    context.Context
	cancel context.CancelFunc
	work   chan []job // never blocks: a sender is given work only when idle

	// The decision goroutine's own.
	broker controller.Broker
	busy   bool      // has work, or rests
	failed bool      // its latest send failed: the next failure is not worth a line
	asked  time.Time // when what has not been answered since was first sent

	at sync.Mutex
	to controller.Broker // where to connect; guarded by at
}

// job is one send on its way. Sends to many brokers share what they say of the
// topics, and that is put on the wire's terms once.
type job struct {
	send   controller.Send
	topics *sharedTopics // of an UpdateMetadata
}

type sharedTopics struct {
	once   sync.Once
	states []kmsg.UpdateMetadataRequestTopicState
}

func (s *sharedTopics) of(u *controller.UpdateMetadata) []kmsg.UpdateMetadataRequestTopicState {
	s.once.Do(func() { s.states = topicStates(u) })
	return s.states
}

func newSender(t *term, b controller.Broker) *sender {
	s := &sender{l: t.l, t: t, broker: b, to: b, work: make(chan []job, 1)}
	s.ctx, s.cancel = context.WithCancel(t.ctx)
	t.l.wg.Go(s.run)
	return s
}

func (s *sender) stop() { s.cancel() }

// moveTo takes over endpoints that changed within the incarnation; a connection
// that stands is kept.
func (s *sender) moveTo(b controller.Broker) {
	s.broker = b
	s.at.Lock()
	defer s.at.Unlock()
	s.to = b
}

func (s *sender) give(jobs []job) {
	s.busy = true
	if !s.failed {
		s.asked = s.l.opts.Clock.Now()
	}
	s.work <- jobs
}

func (s *sender) run() {
	var conn *client.Conn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for {
		select {
		case <-s.ctx.Done():
			return
		case jobs := <-s.work:
			conn = s.carry(conn, jobs)
		}
	}
}

// carry sends in order until one fails and returns the connection, if it is
// still good.
func (s *sender) carry(conn *client.Conn, jobs []job) *client.Conn {
	for i, j := range jobs {
		m := answered{from: s, send: j.send, last: i == len(jobs)-1}
		if conn == nil {
			conn, m.err = s.dial()
		}
		if m.err == nil {
			m.ans, m.err = s.do(conn, j)
		}
		if m.err != nil {
			if conn != nil {
				conn.Close()
				conn = nil
			}
			m.last = true
		}
		m.last = m.last || m.ans.Error != 0
		s.l.inbox.put(m)
		if m.last {
			break
		}
	}
	return conn
}

func (s *sender) dial() (*client.Conn, error) {
	s.at.Lock()
	to := s.to
	s.at.Unlock()
	return s.l.opts.Dial(s.ctx, to)
}

func (s *sender) do(conn *client.Conn, j job) (controller.Answer, error) {
	resp, err := conn.Do(s.ctx, request(s.t.im.Self(), s.t.im.Epoch(), j))
	if err != nil {
		return controller.Answer{}, err
	}
	return answer(j.send, resp)
}

// answered takes what became of a send.
func (l *Loop) answered(m answered) {
	s, t := m.from, l.term
	if t == nil || s.t != t || t.senders[s.broker.ID] != s {
		return // of an earlier term or incarnation
	}
	log := l.opts.Logger.With().Int32("peer", int32(s.broker.ID)).Str("request", sendName(m.send)).Logger()
	switch {
	case m.err != nil:
		if !s.failed {
			log.Warn().Err(m.err).Msg("controller cannot reach the broker, will try until it does or the broker is gone")
		}
		s.failed = true
		if s.l.opts.Clock.Now().Sub(s.asked) >= s.l.requestTime() {
			t.im.BrokerSilent(s.broker.ID)
		}
		s.rest()
		return
	case m.ans.Error != 0:
		s.asked = s.l.opts.Clock.Now() // it answers
		if !s.failed {
			log.Error().Str("error", errorName(m.ans.Error)).Msg("broker refuses the controller's request")
		}
		s.failed = true
		if m.ans.Error == codeStaleControllerEpoch {
			l.contends = true // is there a later controller?
		}
		if m.ans.Error == codeStaleBrokerEpoch {
			t.todo.brokers = true // it knows of a later registration
		}
		s.rest()
		return
	}
	s.failed = false
	for tp, code := range m.ans.Partitions {
		if code != codeStaleControllerEpoch || m.send.LeaderAndISR == nil { // which repeats get
			log.Warn().Stringer("partition", tp).Str("error", errorName(code)).Msg("broker answers an error for a partition")
		}
	}
	t.im.Answered(m.send, m.ans)
	if m.last {
		s.busy = false
	}
}

// requestTime is how long an answer is waited for (controller.socket.timeout.ms).
func (l *Loop) requestTime() time.Duration {
	if d := l.opts.Client.RequestTimeout; d > 0 {
		return d
	}
	return client.DefaultRequestTimeout
}

// rest keeps a sender from being given work for a moment.
func (s *sender) rest() {
	s.busy = true
	s.l.opts.Clock.AfterFunc(retryBackoff, func() { s.l.inbox.put(rested{s}) })
}

func (l *Loop) rested(m rested) {
	if l.term != nil && m.from.t == l.term {
		m.from.busy = false
	}
}

// errUnexpected marks an answer that does not fit its request.
var errUnexpected = errors.New("unexpected answer")
