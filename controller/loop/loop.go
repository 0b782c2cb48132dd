package loop

import (
	"context"
	"errors"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/controller"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/rs/zerolog"
)

// Errors that callers of a Loop have to tell apart.
var (
	ErrNotController    = errors.New("this broker is not the controller")
	ErrStaleBrokerEpoch = errors.New("broker epoch differs from the registered one")
	ErrUnknownBroker    = errors.New("broker is not registered")
	ErrClosed           = errors.New("controller is closed")
	ErrKRaft            = errors.New("a KRaft controller owns this cluster")
)

// Options of a Loop.
type Options struct {
	Store zkmeta.Store
	Self  cluster.BrokerID
	// Listener is the name of the listener on which brokers are reached:
	// control.plane.listener.name, else inter.broker.listener.name.
	Listener string
	// InterBrokerListener is the one whose endpoint followers are told of their
	// leader; empty: Listener.
	InterBrokerListener string
	// Dial connects to a broker; nil: client.Dial to its endpoint on Listener
	// with Client.
	Dial   func(ctx context.Context, b controller.Broker) (*client.Conn, error)
	Client client.Options
	// UncleanElection is the broker's default of unclean.leader.election.enable
	// for topics that do not set it; nil: false.
	UncleanElection func() bool
	// Ineligible keeps this broker from contending
	// (kbroker.controller.eligible=false).
	Ineligible bool
	// OnController hears of each election won and of each resignation, in the
	// decision goroutine; it must not call the Loop.
	OnController func(active bool, epoch cluster.ControllerEpoch)
	Clock        clock.Clock
	Logger       zerolog.Logger
}

// Loop contends for being the controller, from Start to Close.
type Loop struct {
	opts Options
}

// Start begins to contend. It fails with ErrKRaft when a KRaft controller owns
// the cluster.
func Start(o Options) (*Loop, error) {
	panic("not written")
}

// Active reports whether this broker is the controller.
func (l *Loop) Active() bool { panic("not written") }

// Epoch is the epoch in which this broker is the controller.
func (l *Loop) Epoch() (cluster.ControllerEpoch, bool) { panic("not written") }

// AllocateProducerIDs hands the next block of producer ids to a broker.
func (l *Loop) AllocateProducerIDs(ctx context.Context, broker cluster.BrokerID, epoch cluster.BrokerEpoch) (start int64, n int32, err error) {
	panic("not written")
}

// Close resigns and waits for every goroutine of the loop.
func (l *Loop) Close() { panic("not written") }
