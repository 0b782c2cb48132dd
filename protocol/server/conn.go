package server

import "net/netip"

// Conn is one client's connection.
type Conn struct {
	ID               uint64
	ListenerName     string
	SecurityProtocol SecurityProtocol
	RemoteAddr       netip.AddrPort
	LocalAddr        netip.AddrPort
	Principal        string
}

// ClientSoftware is what the client said of itself in ApiVersions.
func (c *Conn) ClientSoftware() (name, version string) { panic("not yet") }

// SetClientSoftware keeps what ApiVersions v3+ says of the client.
func (c *Conn) SetClientSoftware(name, version string) { panic("not yet") }

// Attach keeps a value with the connection until it ends.
func (c *Conn) Attach(key, value any) { panic("not yet") }

// Attached is the value that was attached under key, nil for none.
func (c *Conn) Attached(key any) any { panic("not yet") }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { panic("not yet") }
