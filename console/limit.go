package console

import (
	"net"
	"sync"
)

// limited accepts a connection only while fewer than a number of them are open.
type limited struct {
	net.Listener
	slots  chan struct{} // one element for each open connection
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotted{Conn: c, free: func() { <-l.slots }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// slotted gives its slot back when it is closed.
type slotted struct {
	net.Conn
	free func()
	once sync.Once
}

func (c *slotted) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
