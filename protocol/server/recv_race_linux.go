//go:build race

package server

import "syscall"

// receive is read(2): the race detector knows of that call that what came before the
// writing of the bytes comes before their reading.
func receive(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }
