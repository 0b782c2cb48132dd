package controller

import "github.com/kbroker/kbroker/cluster"

// Endpoint is one listener of a broker as its registration names it. Protocol
// is Kafka's number of the security protocol.
type Endpoint struct {
	Listener string
	Host     string
	Port     int32
	Protocol int16
}

// Broker is one incarnation of a live broker: Epoch is the czxid of its
// registration.
type Broker struct {
	ID        cluster.BrokerID
	Epoch     cluster.BrokerEpoch
	Endpoints []Endpoint
	Rack      *string
	// Unclean: its process started without the mark of a clean shutdown.
	Unclean bool
}

// Endpoint is the broker's endpoint on a listener.
func (b Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}
