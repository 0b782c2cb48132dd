package client

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
	"github.com/rs/zerolog"
)

func registrationOf(store zkmeta.Store, c clock.Clock) Registration {
	b := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9092}}, "", 5)
	return Registration{Store: store, ID: 3, Broker: b, Clock: c}
}

// register registers and checks what is in the store.
func register(t *testing.T, r Registration) (cluster.BrokerEpoch, zkmeta.Session) {
	t.Helper()
	epoch, sess, err := r.Register(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	b, st, found, err := zkmeta.GetBroker(testContext(t), sess, r.ID, false)
	if err != nil || !found || cluster.BrokerEpoch(st.Czxid) != epoch || st.EphemeralOwner != sess.ID() || b.Host != "h" {
		t.Fatalf("epoch %d of session %#x, the store has %+v %+v, %v", epoch, sess.ID(), st, b, err)
	}
	return epoch, sess
}

func TestRegister(t *testing.T) {
	m := embedded.NewMemory(embedded.Options{})
	s := m.Connect()
	first, sess := register(t, registrationOf(s, nil)) // the path is made, too
	again, _ := register(t, registrationOf(s, nil))    // by the same session: nothing to do
	if again != first {
		t.Errorf("epoch %d after %d", again, first)
	}
	_, st, _, _ := zkmeta.GetBroker(testContext(t), sess, 3, false)
	if st.Version != 1 {
		t.Errorf("version %d", st.Version)
	}
	other := registrationOf(s, nil)
	other.Broker.Rack = "r" // by the same session, another content
	if epoch, _ := register(t, other); epoch != first {
		t.Errorf("epoch %d after %d", epoch, first)
	}
	s.Expire()
	after, next := register(t, registrationOf(s, nil))
	if after <= first || next.Generation() != 2 {
		t.Errorf("epoch %d of generation %d after expiry", after, next.Generation())
	}
}

// TestRegisterUnknownOutcome: the reply or the request is lost, or the
// connection, or the session.
func TestRegisterUnknownOutcome(t *testing.T) {
	for _, fault := range []embedded.Fault{embedded.LoseReply, embedded.LoseRequest} {
		for _, loseSession := range []bool{false, true} {
			m := embedded.NewMemory(embedded.Options{})
			s := m.Connect()
			register(t, Registration{Store: s, ID: 1, Broker: registrationOf(s, nil).Broker})
			lost := 0
			s.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
				if c.Kind != "multi" || lost > 2 {
					return embedded.NoFault
				}
				if lost++; lost == 2 && loseSession {
					s.Expire()
				}
				return fault
			})
			_, sess := register(t, registrationOf(s, nil))
			if want := map[bool]uint64{false: 1, true: 2}[loseSession]; sess.Generation() != want {
				t.Errorf("generation %d, want %d", sess.Generation(), want)
			}
		}
	}
}

// TestRegisterOwnOldSession: the znode of a session that this store gave up,
// and that the ensemble has not ended yet, is replaced at once.
func TestRegisterOwnOldSession(t *testing.T) {
	m := embedded.NewMemory(embedded.Options{})
	s, old := m.Connect(), m.Connect()
	_, oldSession := register(t, registrationOf(old, nil))
	epoch, sess, err := registrationOf(ownsAll{s}, nil).Register(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	_, st, _, err := zkmeta.GetBroker(testContext(t), sess, 3, false)
	if err != nil || st.EphemeralOwner == oldSession.ID() || cluster.BrokerEpoch(st.Czxid) != epoch {
		t.Errorf("%+v, %v", st, err)
	}
}

// ownsAll takes every session for an earlier one of the store.
type ownsAll struct{ *embedded.Store }

func (o ownsAll) Wait(ctx context.Context) (zkmeta.Session, error) {
	s, err := o.Store.Wait(ctx)
	return ownsAllSession{s}, err
}

type ownsAllSession struct{ zkmeta.Session }

func (ownsAllSession) Owned(int64) bool { return true }

// TestRegisterWaits: somebody else's znode is waited for.
func TestRegisterWaits(t *testing.T) {
	m := embedded.NewMemory(embedded.Options{})
	s, killed := m.Connect(), m.Connect()
	register(t, registrationOf(killed, nil))
	clk := clock.NewManual(time.Unix(0, 0))
	waiting := make(chan struct{}, 100)
	s.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
		if c.Kind == "exists" {
			waiting <- struct{}{}
		}
		return embedded.NoFault
	})
	done := make(chan error, 1)
	go func() {
		_, _, err := registrationOf(s, clk).Register(testContext(t))
		done <- err
	}()
	<-waiting
	s.Disconnect() // losing the connection in between changes nothing
	s.Reconnect()
	<-waiting
	killed.Expire()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	// One that stays is an error after a minute: a Memory's session has no
	// time-out, and that of the other one is not known. Meanwhile a line every few
	// seconds says why.
	third := m.Connect()
	third.SetHook(func(_ context.Context, c embedded.Call) embedded.Fault {
		if c.Kind == "exists" {
			waiting <- struct{}{}
		}
		return embedded.NoFault
	})
	var told lines
	began := clk.Now()
	go func() {
		r := registrationOf(third, clk)
		r.Logger = zerolog.New(&told)
		_, _, err := r.Register(testContext(t))
		done <- err
	}()
	<-waiting
	waitFor(t, func() bool {
		if told.count()*5 < int(clk.Now().Sub(began).Seconds())+1 && clk.Now().Sub(began) < time.Minute {
			return false // the line of this time has not been written yet
		}
		clk.Advance(time.Second)
		select {
		case err := <-done:
			if !errors.Is(err, zkmeta.ErrNodeExists) || !strings.Contains(err.Error(), "another broker runs with the id 3, or a killed one had a session time-out above that") {
				t.Errorf("error %v", err)
			}
			return true
		default:
			return false
		}
	})
	if waited := clk.Now().Sub(began); waited < time.Minute {
		t.Errorf("it waited for %v", waited)
	}
	if n := told.count(); n < 12 {
		t.Errorf("%d lines in a minute: %s", n, told.text)
	}

	// One whose endpoint answers is refused as soon as a killed process of this
	// broker's time-out would be gone.
	for len(waiting) > 0 {
		<-waiting // of before
	}
	began = clk.Now()
	go func() {
		r := registrationOf(third, clk)
		r.Answers = func(_ context.Context, b zkmeta.BrokerRegistration) bool { return b.Host == "h" }
		_, _, err := r.Register(testContext(t))
		done <- err
	}()
	<-waiting
	waitFor(t, func() bool {
		if clk.Now().Sub(began) < 4*time.Second { // two ticks
			clk.Advance(time.Second)
		}
		select {
		case err := <-done:
			if !errors.Is(err, zkmeta.ErrNodeExists) || !strings.Contains(err.Error(), "somebody answers at its endpoint: another broker runs with the id 3") {
				t.Errorf("error %v", err)
			}
			return true
		default:
			return false
		}
	})

	// The caller's patience is the context's.
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		_, _, err := registrationOf(third, clk).Register(ctx)
		done <- err
	}()
	<-waiting
	cancel()
	mustFail(t, <-done, context.Canceled)
	third.Close()
	_, _, err := registrationOf(third, clk).Register(testContext(t))
	mustFail(t, err, zkmeta.ErrClosed)
}

// lines counts the lines of a log.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text, []byte("\n"))
}

// TestRegisterAfterKill: a broker that was killed comes back while ZooKeeper
// still keeps its old session, which had a longer time-out than the new one.
func TestRegisterAfterKill(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	root := chroot()
	p := zkmetatest.StartProxy(t, z.Addr)
	// Its session is longer than that of the start and two ticks.
	killed := openStore(t, Options{Connect: p.Addr + root, SessionTimeout: 8 * time.Second})
	first, _ := register(t, registrationOf(killed, nil))
	p.Set(zkmetatest.Refuse) // for ever: the session times out by itself
	start := time.Now()
	s := openStore(t, Options{Connect: z.Addr + root, SessionTimeout: 2 * time.Second})
	second, _ := register(t, registrationOf(s, nil))
	took := time.Since(start)
	if second <= first {
		t.Errorf("epoch %d after %d", second, first)
	}
	if took < 6*time.Second || took > 14*time.Second { // time-out, tick, and a busy machine
		t.Errorf("it took %v", took)
	}
	t.Logf("registered %v after the start", took)
}
