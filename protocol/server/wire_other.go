//go:build !linux

package server

import "net"

func newWire(c *Conn, nc net.Conn) wire { return &stream{c: c, nc: nc} }
