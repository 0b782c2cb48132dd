package loop

import (
	"net"
	"strconv"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
)

// What reaches the decision goroutine besides the store's events.
type (
	// call is a function that runs in the decision goroutine.
	call func()
	// answered is what became of one send of a sender.
	answered struct {
		from *sender
		send controller.Send
		ans  controller.Answer
		err  error // nothing was answered
		last bool  // of what the sender was given
	}
	// rested says that a sender's backoff is over.
	rested struct{ from *sender }
	// rebalance says that it is time to look at the preferred replicas.
	rebalance struct{ of *term }
	// unled says that it is time to tell of a vacancy.
	unled struct{ of *vacancy }
	// wake just runs a step.
	wake struct{}
)

// inbox is unbounded, so that senders never wait for the decision goroutine;
// what is in it is bounded by the sends in flight and the callers.
type inbox struct {
	ready chan struct{} // holds one token while there is mail
	*inboxState
}

type inboxState struct {
	mu     sync.Mutex
	mail   []any
	closed bool
}

func newInbox() inbox { return inbox{make(chan struct{}, 1), &inboxState{}} }

// put reports whether the mail will be taken.
func (b inbox) put(m any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.mail = append(b.mail, m)
	select {
	case b.ready <- struct{}{}:
	default:
	}
	return true
}

func (b inbox) take() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	mail := b.mail
	b.mail = nil
	return mail
}

func (b inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.mail = true, nil
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func idText(id cluster.BrokerID) string { return strconv.Itoa(int(id)) }
