package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/metric"
	"github.com/kbroker/kbroker/protocol"
)

func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// passwords is a SASL exchange of two steps: a name, then "yes".
type passwords struct{}

func (passwords) Start(*Conn) Exchange { return &passwordExchange{} }

type passwordExchange struct{ name string }

func (e *passwordExchange) Step(frame []byte) ([]byte, bool, error) {
	if frame[1] == byte(protocol.SaslHandshake) {
		e.name = string(frame[2:])
		return []byte("password?"), false, nil
	}
	if string(frame[2:]) != "yes" {
		return []byte("no"), false, errors.New("wrong password")
	}
	return []byte("welcome"), true, nil
}

func (e *passwordExchange) Principal() string { return "User:" + e.name }

func saslFrame(key int16, text string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(2+len(text)))
	return append(binary.BigEndian.AppendUint16(b, uint16(key)), text...)
}

func TestAuthentication(t *testing.T) {
	reg := new(metric.Registry)
	served := make(chan string, 10)
	g := start(t, Options{Metrics: reg, Authenticator: passwords{}, MaxPreAuthBytes: 1000,
		Listeners: []ListenerOptions{{Name: "L", Protocol: SASLPlaintext, Addr: "127.0.0.1:0"}},
		Handler: HandlerFunc(func(r *Request) {
			served <- r.Conn.Principal
			r.Respond(ok(r))
		})})
	step := func(nc net.Conn, frame []byte, want string) {
		t.Helper()
		write(t, nc, frame)
		if got := string(readFrame(t, nc)); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	nc := g.dial("L")
	step(nc, saslFrame(protocol.SaslHandshake, "alice"), "password?")
	step(nc, saslFrame(protocol.SaslAuthenticate, "yes"), "welcome")
	stillServes(t, nc)
	if p := <-served; p != "User:alice" {
		t.Errorf("principal %q", p)
	}
	// Again, in the middle of requests, as the same one and as another.
	step(nc, saslFrame(protocol.SaslHandshake, "alice"), "password?")
	step(nc, saslFrame(protocol.SaslAuthenticate, "yes"), "welcome")
	stillServes(t, nc)
	step(nc, saslFrame(protocol.SaslHandshake, "mallory"), "password?")
	write(t, nc, saslFrame(protocol.SaslAuthenticate, "yes"), heartbeat(1))
	readFrame(t, nc)
	wantClosed(t, nc)

	wrong := g.dial("L")
	write(t, wrong, saslFrame(protocol.SaslHandshake, "bob"), saslFrame(protocol.SaslAuthenticate, "?"), heartbeat(1))
	readFrame(t, wrong)
	readFrame(t, wrong)
	wantClosed(t, wrong)

	big := g.dial("L") // the cap before authentication
	write(t, big, binary.BigEndian.AppendUint32(nil, 1001))
	wantClosed(t, big)
	if n := len(served); n != 1 {
		t.Errorf("%d more requests served", n)
	}
	if n := g.count.listeners["L"].authFailed.Value(); n != 1 {
		t.Errorf("%d failures counted", n)
	}
}

// A client that does not get on with its handshake is closed.
func TestSlowAuthenticationEnds(t *testing.T) {
	g, clk := timed(t, Options{FrameTimeout: time.Minute, Authenticator: passwords{}, Handler: answer, Listeners: []ListenerOptions{
		{Name: "L", Protocol: SASLPlaintext, Addr: "127.0.0.1:0"},
		{Name: "T", Protocol: SSL, Addr: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{certificate(t)}}},
	}})
	a, b := g.dial("L"), g.dial("T")
	write(t, a, saslFrame(protocol.SaslHandshake, "alice"))
	readFrame(t, a)
	eventually(t, "both are there", func() bool { return len(openConns(g)) == 2 })
	clk.Advance(2 * time.Minute)
	wantClosed(t, a)
	wantClosed(t, b)
}
