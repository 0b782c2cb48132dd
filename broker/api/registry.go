package api

import (
	"fmt"

	"github.com/kbroker/kbroker/protocol"
)

// API is one API that this broker serves, in the whole range of versions that
// Kafka 3.9 speaks.
type API struct {
	Key int16
	// Notes say, for docs/compat.md, what differs from Kafka 3.9, if anything.
	Notes string
	// Handle answers one request. It may answer later, from any goroutine.
	Handle func(h *Handlers, c *Call)
}

var registered = map[int16]API{}

// register makes an API part of what is advertised and served.
func register(a API) {
	if _, ok := protocol.LookupAPI(a.Key); !ok {
		panic(fmt.Sprintf("api: key %d is not in the protocol's table", a.Key))
	}
	if _, twice := registered[a.Key]; twice {
		panic(fmt.Sprintf("api: key %d is registered twice", a.Key))
	}
	registered[a.Key] = a
}

// Registered are the APIs served, by rising key.
func Registered() []API {
	var out []API
	for _, row := range protocol.APIs() {
		if a, ok := registered[row.Key]; ok {
			out = append(out, a)
		}
	}
	return out
}

// Supports reports whether a request of that key and version is served.
func Supports(key, version int16) bool {
	_, ok := registered[key]
	return ok && protocol.Supported(key, version)
}
