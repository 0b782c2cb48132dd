package client

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// peer is a broker of a few lines: each connection is served by the function.
func peer(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

func readFrame(c net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, frame)
	return frame, err
}

// answerAll answers UpdateMetadata and the like; the error code of the answer
// is the controller epoch of the request, so that answers can be told apart.
func answerAll(c net.Conn) {
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		h, body, err := protocol.ParseHeader(frame)
		if err != nil {
			return
		}
		req, err := protocol.DecodeRequest(h, body)
		if err != nil {
			return
		}
		resp := req.ResponseKind()
		if r, ok := req.(*kmsg.UpdateMetadataRequest); ok {
			resp.(*kmsg.UpdateMetadataResponse).ErrorCode = int16(r.ControllerEpoch)
		}
		if _, err := c.Write(protocol.EncodeResponse(nil, h, resp)); err != nil {
			return
		}
	}
}

func update(epoch int32) *kmsg.UpdateMetadataRequest {
	r := kmsg.NewPtrUpdateMetadataRequest()
	r.Version, r.ControllerEpoch = 8, epoch
	return r
}

func dial(t *testing.T, addr string, o Options) *Conn {
	t.Helper()
	c, err := Dial(context.Background(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestEachCallerGetsItsAnswer(t *testing.T) {
	c := dial(t, peer(t, answerAll), Options{ClientID: "7"})
	var wg sync.WaitGroup
	errs := make(chan error, 50)
	for n := range int32(50) {
		wg.Go(func() {
			for i := range int32(20) {
				resp, err := c.Do(context.Background(), update(n*100+i))
				if err != nil {
					errs <- err
					return
				}
				if got := resp.(*kmsg.UpdateMetadataResponse).ErrorCode; got != int16(n*100+i) {
					errs <- fmt.Errorf("asked %d, was answered %d", n*100+i, got)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// Requests arrive in the order in which Do was entered, also while none of them
// is answered.
func TestOrder(t *testing.T) {
	arrived := make(chan int32, 3)
	answer := make(chan struct{})
	addr := peer(t, func(c net.Conn) {
		var headers []protocol.Header
		for range 3 {
			frame, err := readFrame(c)
			if err != nil {
				return
			}
			h, body, _ := protocol.ParseHeader(frame)
			req, _ := protocol.DecodeRequest(h, body)
			arrived <- req.(*kmsg.UpdateMetadataRequest).ControllerEpoch
			headers = append(headers, h)
		}
		<-answer
		for i, h := range headers {
			resp := &kmsg.UpdateMetadataResponse{Version: 8, ErrorCode: int16(i)}
			c.Write(protocol.EncodeResponse(nil, h, resp))
		}
	})
	c := dial(t, addr, Options{})
	var wg sync.WaitGroup
	for i := range int32(3) {
		wg.Go(func() {
			resp, err := c.Do(context.Background(), update(i))
			if err != nil || resp.(*kmsg.UpdateMetadataResponse).ErrorCode != int16(i) {
				t.Errorf("%d: %v, %v", i, resp, err)
			}
		})
		if got := <-arrived; got != i {
			t.Fatalf("request %d arrived as number %d", got, i)
		}
	}
	close(answer)
	wg.Wait()
}

func TestTimeoutEndsTheConnection(t *testing.T) {
	asked := make(chan struct{})
	addr := peer(t, func(c net.Conn) {
		if _, err := readFrame(c); err == nil {
			close(asked)
		}
		io.Copy(io.Discard, c) // never answers
	})
	clk := clock.NewManual(time.Unix(0, 0))
	c := dial(t, addr, Options{RequestTimeout: 5 * time.Second, Clock: clk})
	failed := make(chan error, 1)
	go func() {
		_, err := c.Do(context.Background(), update(1))
		failed <- err
	}()
	<-asked
	clk.Advance(4999 * time.Millisecond)
	if err := c.Err(); err != nil {
		t.Fatalf("ended too early: %v", err)
	}
	clk.Advance(time.Millisecond)
	if err := <-failed; !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Do(context.Background(), update(2)); !errors.Is(err, ErrTimeout) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestEnds(t *testing.T) {
	// silent never answers; then runs when a request has come.
	silent := func(then func()) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := readFrame(c); err == nil {
				then()
			}
			io.Copy(io.Discard, c)
		}
	}
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		c := dial(t, peer(t, silent(cancel)), Options{})
		if _, err := c.Do(ctx, update(1)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if c.Err() == nil {
			t.Fatal("the answer may still come, but the connection goes on")
		}
	})
	t.Run("context before", func(t *testing.T) {
		c := dial(t, peer(t, answerAll), Options{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := c.Do(ctx, update(1)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := c.Do(context.Background(), update(1)); err != nil {
			t.Fatalf("nothing was sent, so the connection is good: %v", err)
		}
	})
	t.Run("close", func(t *testing.T) {
		asked := make(chan struct{})
		c := dial(t, peer(t, silent(func() { close(asked) })), Options{})
		go func() { <-asked; c.Close() }()
		if _, err := c.Do(context.Background(), update(1)); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	})
	t.Run("peer closes", func(t *testing.T) {
		c := dial(t, peer(t, func(c net.Conn) { readFrame(c) }), Options{})
		if _, err := c.Do(context.Background(), update(1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

// A pipelined caller fails with the reason for which the connection ended.
func TestFailureReachesThoseBehind(t *testing.T) {
	both := make(chan struct{})
	c := dial(t, peer(t, func(c net.Conn) {
		readFrame(c)
		readFrame(c)
		<-both
	}), Options{})
	errs := make(chan error, 2)
	for range 2 {
		go func() { _, err := c.Do(context.Background(), update(1)); errs <- err }()
	}
	close(both)
	for range 2 {
		if err := <-errs; err == nil {
			t.Fatal("no error")
		}
	}
}

func TestMalformed(t *testing.T) {
	frame := func(n uint32, b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), b...) }
	for name, reply := range map[string][]byte{
		"negative size":     frame(1<<31, 0, 0, 0, 0),
		"oversized":         frame(1 << 20),
		"too small":         frame(2, 0, 0),
		"other correlation": frame(9, 0, 0, 0, 99, 0, 0, 0, 0, 0),
		"broken tags":       frame(5, 0, 0, 0, 0, 0xff),
		"cut body":          frame(6, 0, 0, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, peer(t, func(c net.Conn) { readFrame(c); c.Write(reply); io.Copy(io.Discard, c) }), Options{MaxResponseBytes: 1000})
			if _, err := c.Do(context.Background(), update(1)); !errors.Is(err, protocol.ErrMalformed) {
				t.Fatalf("got %v", err)
			}
			if c.Err() == nil {
				t.Fatal("the connection goes on")
			}
		})
	}
}

// Memory grows with what arrives.
func TestPromisedSizeIsNotAllocated(t *testing.T) {
	r, w := net.Pipe()
	go func() { w.Write(make([]byte, 100)); w.Close() }()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readN(r, 1<<30, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Fatalf("%d bytes allocated for 100", n)
	}
	big := bytes.Repeat([]byte("0123456789"), 500_000)
	got, err := readN(bytes.NewReader(big), len(big), nil)
	if err != nil || !bytes.Equal(got, big) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

func TestStopReplicaOnTheWire(t *testing.T) {
	want := golden(t, "stop-replica-v4-request-deletion")
	h, body, err := protocol.ParseHeader(want)
	if err != nil {
		t.Fatal(err)
	}
	req, err := protocol.DecodeRequest(h, body)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	c := dial(t, peer(t, func(c net.Conn) { f, _ := readFrame(c); got <- f }), Options{ClientID: h.ClientID})
	c.next = h.CorrelationID
	c.Do(context.Background(), req)
	if f := <-got; !bytes.Equal(f, want) {
		t.Fatalf("\n%x, Kafka sends\n%x", f, want)
	}
}

// golden reads a frame that Apache Kafka sent.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../testdata/frames/" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	frame, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestAuthenticateRunsFirst(t *testing.T) {
	refuse := errors.New("no")
	addr := peer(t, answerAll)
	if _, err := Dial(context.Background(), addr, Options{Authenticate: func(context.Context, *Conn) error { return refuse }}); !errors.Is(err, refuse) {
		t.Fatal(err)
	}
	asked := false
	c := dial(t, addr, Options{Authenticate: func(ctx context.Context, c *Conn) error {
		asked = true
		_, err := c.Do(ctx, update(3))
		return err
	}})
	if _, err := c.Do(context.Background(), update(4)); err != nil || !asked {
		t.Fatal(err, asked)
	}
}

func TestTLS(t *testing.T) {
	cert, pool := selfSigned(t)
	addr := peer(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		answerAll(s)
	})
	c := dial(t, addr, Options{TLS: &tls.Config{RootCAs: pool}})
	if resp, err := c.Do(context.Background(), update(9)); err != nil || resp.(*kmsg.UpdateMetadataResponse).ErrorCode != 9 {
		t.Fatal(resp, err)
	}
	if _, err := Dial(context.Background(), addr, Options{TLS: &tls.Config{}}); err == nil {
		t.Fatal("an unknown certificate was accepted")
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestDialFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	if _, err := Dial(context.Background(), addr, Options{}); err == nil {
		t.Fatal("connected to nobody")
	}
}
