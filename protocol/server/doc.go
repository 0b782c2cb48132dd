// Package server serves the wire protocol: listeners, connections, the order
// of requests and responses on them, and every bound that keeps a client from
// taking more than its share. It owns sockets and the memory of requests; it
// never decides an answer, which is the Handler's work.
package server
