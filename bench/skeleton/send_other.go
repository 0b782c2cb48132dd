//go:build !linux

package main

import (
	"io"
	"net"
	"os"
)

func send(tc *net.TCPConn, b []byte, _ bool) error {
	_, err := tc.Write(b)
	return err
}

func sendFile(tc *net.TCPConn, f *os.File, pos int64, n int) error {
	_, err := io.Copy(tc, io.NewSectionReader(f, pos, int64(n)))
	return err
}
