package server

import (
	"context"
	"net"
)

// Server is a set of listeners and their connections.
type Server struct{}

// Listen opens every listener; nothing is accepted before Start.
func Listen(o Options) (*Server, error) { panic("not yet") }

// Addr is where a listener listens, nil for an unknown name.
func (s *Server) Addr(listener string) net.Addr { panic("not yet") }

// Start begins to accept connections.
func (s *Server) Start() { panic("not yet") }

// Close stops accepting and reading, lets what is in flight be answered until
// ctx ends, closes every connection and returns when no goroutine is left.
func (s *Server) Close(ctx context.Context) error { panic("not yet") }
