package client

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/zkmeta"
)

// Options say how to reach ZooKeeper.
type Options struct {
	// Connect is Kafka's zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT.
	Connect string
	// SessionTimeout is asked for; the server may clamp it. Default 18 s.
	SessionTimeout time.Duration
	// ConnectionTimeout bounds a dial and, after it, a TLS handshake and the
	// begin of the session, each. A third of SessionTimeout is the default and
	// the most, so that a session outlives two servers that are away; half a
	// second is the least. (How long a start waits is the context's of Wait.)
	ConnectionTimeout time.Duration
	// CallTimeout bounds a call; after it the outcome is unknown. Default
	// SessionTimeout, at least 5 s.
	CallTimeout time.Duration
	// SetACL is zookeeper.set.acl: created znodes belong to their creator.
	SetACL bool
	// Auth are identities to present on every connection, before anything else.
	Auth []Auth
	// TLS encrypts the connections when it is not nil. An empty ServerName is
	// taken from each server's address.
	TLS *tls.Config

	Logger zerolog.Logger
	Clock  clock.Clock // default the machine's
}

// Auth is an identity: for the scheme "digest" the credential is USER:PASSWORD.
// SASL is not among the schemes that work.
type Auth struct {
	Scheme     string
	Credential []byte
}

func (o *Options) setDefaults() {
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = 18 * time.Second
	}
	if o.ConnectionTimeout <= 0 {
		o.ConnectionTimeout = o.SessionTimeout
	}
	o.ConnectionTimeout = max(min(o.ConnectionTimeout, o.SessionTimeout/3), 500*time.Millisecond)
	if o.CallTimeout <= 0 {
		o.CallTimeout = max(o.SessionTimeout, 5*time.Second)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
}

// ParseConnect splits a connect string into the servers, each with a port, and
// the chroot, "" for none.
func ParseConnect(connect string) (servers []string, chroot string, err error) {
	list := connect
	if i := strings.IndexByte(connect, '/'); i >= 0 {
		list, chroot = connect[:i], strings.TrimRight(connect[i:], "/")
	}
	bad := func(what string) error { return fmt.Errorf("zookeeper.connect %q: %s", connect, what) }
	if chroot != "" {
		if err := zkmeta.ValidatePath(chroot, false); err != nil {
			return nil, "", bad(err.Error())
		}
	}
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil { // no port, or nonsense
			host, port = s, "2181"
			if v6, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(v6, "]") {
				host = strings.TrimSuffix(v6, "]")
			}
			if strings.ContainsAny(host, ":[]") && net.ParseIP(host) == nil {
				return nil, "", bad(fmt.Sprintf("%q is not HOST:PORT", s))
			}
		}
		if n, err := net.LookupPort("tcp", port); host == "" || err != nil || n == 0 {
			return nil, "", bad(fmt.Sprintf("%q is not HOST:PORT", s))
		}
		if s = net.JoinHostPort(host, port); !slices.Contains(servers, s) {
			servers = append(servers, s)
		}
	}
	if len(servers) == 0 {
		return nil, "", bad("it names no server")
	}
	return servers, chroot, nil
}
