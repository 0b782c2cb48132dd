//go:build invariants

package server

// twice is called when a request is answered a second time.
func twice(r *Request) { panic("server: second answer to a request") }
