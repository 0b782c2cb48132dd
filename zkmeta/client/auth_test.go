package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

func digest(user string) []Auth { return []Auth{{"digest", []byte(user + ":secret")}} }

// TestACLs: with zookeeper.set.acl what is created belongs to its creator, who
// is presented again on every connection.
func TestACLs(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	root := chroot()
	s := openStore(t, Options{Connect: p.Addr + root, SetACL: true, Auth: digest("kafka"), SessionTimeout: 3 * time.Second})
	sess := wait(t, s)
	if err := zkmeta.EnsurePersistentPaths(testContext(t), sess); err != nil {
		t.Fatal(err)
	}
	user := zkmeta.ConfigEntityPath(zkmeta.UserConfigs, "alice")
	mustMulti(t, sess, zkmeta.Create(user, []byte("{}"), zkmeta.Persistent, nil),
		zkmeta.Create("/open", nil, zkmeta.Persistent, zkmeta.ACL{{Perms: zkmeta.PermAll, Scheme: "world", ID: "anyone"}}))

	raw, _, err := zk.Connect([]string{z.Addr}, 5*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := raw.AddAuth("digest", []byte("kafka:secret")); err != nil { // others are not shown the digest
		t.Fatal(err)
	}
	id := zk.DigestACL(zk.PermAll, "kafka", "secret")[0]
	for path, want := range map[string][]zk.ACL{
		"/brokers/ids":   {id, {Perms: zk.PermRead, Scheme: "world", ID: "anyone"}},
		user:             {id},
		"/config/users":  {id},
		"/config/topics": {id, {Perms: zk.PermRead, Scheme: "world", ID: "anyone"}},
		"/consumers":     {{Perms: zk.PermAll, Scheme: "world", ID: "anyone"}},
		"/open":          {{Perms: zk.PermAll, Scheme: "world", ID: "anyone"}},
		"/":              {id, {Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}, // the chroot itself
	} {
		got, _, err := raw.GetACL(strings.TrimSuffix(root+path, "/"))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: access list %v, want %v (%v)", path, got, want, err)
		}
	}

	stranger := wait(t, openStore(t, Options{Connect: z.Addr + root, Auth: digest("mallory")}))
	_, err = stranger.Multi(testContext(t), zkmeta.Set("/brokers/ids", nil, -1))
	mustFail(t, err, zkmeta.ErrNoAuth)
	_, _, err = stranger.Get(testContext(t), user, false)
	mustFail(t, err, zkmeta.ErrNoAuth)
	if _, _, err := stranger.Get(testContext(t), "/brokers/ids", false); err != nil {
		t.Error(err)
	}
	if err := zkmeta.EnsurePersistentPaths(testContext(t), stranger); err != nil {
		t.Errorf("paths that are there need not be readable: %v", err)
	}
	_, err = stranger.Multi(testContext(t), zkmeta.Create("/consumers/x", nil, zkmeta.Persistent, zkmeta.ACL{{Perms: zkmeta.PermAll, Scheme: "nonsense", ID: "x"}}))
	mustFail(t, err, zkmeta.ErrInvalidACL)

	for range 3 {
		lost := lostOf(s)
		p.CutAll()
		<-lost
		mustMulti(t, wait(t, s), zkmeta.Set(user, nil, -1))
	}
}

// TestRefusedCredentials: the reason reaches whoever waits, and it does not
// spin.
func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	z := shared.ZooKeeper(t)
	p := zkmetatest.StartProxy(t, z.Addr)
	s := openStore(t, Options{Connect: p.Addr + chroot(), Auth: []Auth{{"kerberos", []byte("x")}}, SessionTimeout: 3 * time.Second})
	waitFor(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.lastError != nil && strings.Contains(s.lastError.Error(), "refuses the kerberos credentials")
	})
	if _, err := s.Session(); !errors.Is(err, zkmeta.ErrNotConnected) {
		t.Errorf("it has a session: %v", err)
	}
	if n := p.Accepted(); n > 4 {
		t.Errorf("%d connections", n)
	}
	if _, err := Open(Options{Connect: "localhost", Auth: []Auth{{"sasl", nil}}}); err == nil || !strings.Contains(err.Error(), "SASL") {
		t.Errorf("SASL: %v", err)
	}
}

// certificate writes a self-signed certificate with its key, as ZooKeeper and
// as we read it.
func certificate(t *testing.T, dir string) (pemFile string, pool *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "zookeeper"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pemFile = filepath.Join(dir, "zookeeper.pem")
	if err := os.WriteFile(pemFile, append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), cert...), 0o600); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pemFile, pool
}

// TestTLS: a ZooKeeper that wants client certificates.
func TestTLS(t *testing.T) {
	t.Parallel()
	pemFile, pool := certificate(t, t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	zkmetatest.StartZooKeeper(t,
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"secureClientPort="+port,
		"ssl.keyStore.location="+pemFile, "ssl.keyStore.type=PEM",
		"ssl.trustStore.location="+pemFile, "ssl.trustStore.type=PEM",
		"ssl.hostnameVerification=false", "ssl.clientAuth=need")
	pair, err := tls.LoadX509KeyPair(pemFile, pemFile)
	if err != nil {
		t.Fatal(err)
	}
	good := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		sess := wait(t, openStore(t, Options{Connect: host + ":" + port + chroot(), TLS: good}))
		mustMulti(t, sess, zkmeta.Create("/a", make([]byte, 500_000), zkmeta.Persistent, nil))
		data, _, err := sess.Get(testContext(t), "/a", false)
		if err != nil || len(data) != 500_000 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
	}
	for why, cfg := range map[string]*tls.Config{
		"unknown authority":      {Certificates: good.Certificates},
		"no client certificate":  {RootCAs: pool},
		"another server's name":  {RootCAs: pool, Certificates: good.Certificates, ServerName: "elsewhere"},
		"no TLS (nil)":           nil,
		"a version that is over": {RootCAs: pool, Certificates: good.Certificates, MaxVersion: tls.VersionTLS10},
	} {
		s := openStore(t, Options{Connect: "127.0.0.1:" + port, TLS: cfg, SessionTimeout: 2 * time.Second})
		waitFor(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.cur != nil {
				t.Fatalf("%s: it got a session", why)
			}
			return s.lastError != nil
		})
	}
}
