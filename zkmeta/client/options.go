package client

import (
	"crypto/tls"
	"time"

	"github.com/rs/zerolog"

	"github.com/kbroker/kbroker/internal/clock"
)

// Options say how to reach ZooKeeper.
type Options struct {
	// Connect is Kafka's zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT.
	Connect string
	// SessionTimeout is asked for; the server may clamp it. Default 18 s.
	SessionTimeout time.Duration
	// ConnectionTimeout bounds one dial with its TLS and session handshakes.
	// Default SessionTimeout / 3, at least 1 s.
	ConnectionTimeout time.Duration
	// CallTimeout bounds a call whose context has no earlier deadline; after
	// it the outcome is unknown. Default SessionTimeout, at least 5 s.
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
type Auth struct {
	Scheme     string
	Credential []byte
}
