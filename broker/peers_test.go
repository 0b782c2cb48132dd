package broker

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/kbroker/kbroker/broker/metadata"
	"github.com/kbroker/kbroker/protocol/client"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A controller that takes a request and never answers holds nobody up longer than
// until another one is named.
func TestControllerLinkGivesUpAControllerThatMoved(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 1024)
		if _, err := c.Read(buf); err == nil {
			close(asked)
		}
		c.Read(buf) // until the other side hangs up
	}()
	brokers := []metadata.Broker{{ID: 1, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)}}}, {ID: 2}}
	cache := metadata.New()
	cache.Apply(metadata.Update{Controller: 1, Brokers: brokers})
	link := &controllerLink{peers: &peers{cache: cache, listener: "PLAINTEXT", control: "PLAINTEXT", client: client.Options{RequestTimeout: time.Hour}}}
	defer link.close()
	ended := make(chan error, 1)
	go func() {
		_, err := link.Do(t.Context(), kmsg.NewPtrAllocateProducerIDsRequest())
		ended <- err
	}()
	<-asked
	cache.Apply(metadata.Update{Controller: 1, Brokers: brokers}) // an update that changes nothing of it
	select {
	case err := <-ended:
		t.Fatalf("given up while the controller is the same: %v", err)
	default:
	}
	cache.Apply(metadata.Update{Controller: 2, Brokers: brokers})
	select {
	case err := <-ended:
		if !errors.Is(err, errControllerMoved) {
			t.Errorf("ends with %v, want %v", err, errControllerMoved)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still waiting for a controller that is one no more")
	}
}
