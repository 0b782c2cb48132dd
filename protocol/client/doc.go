// Package client is one ordered connection to one peer broker. It owns the
// socket, its TLS and SASL start, correlation ids and time-outs; it never
// chooses versions, retries or reconnects: that is its user's decision.
package client
