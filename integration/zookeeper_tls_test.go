//go:build integration

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	jks "github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

const storePassword = "storepassword"

// tlsStores are stores of one authority, and of a certificate that it gave for
// 127.0.0.1, in every format.
type tlsStores struct {
	keyJKS, keyP12, keyPEM, trustJKS, trustP12, trustPEM string

	client *tls.Config
}

func newTLSStores(t testing.TB) tlsStores {
	t.Helper()
	dir := tempDir(t, "stores")
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	caKey, key := newKey(), newKey()
	sign := func(c, parent *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
		c.NotBefore, c.NotAfter, c.BasicConstraintsValid = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour), true
		der, err := x509.CreateCertificate(rand.Reader, c, parent, public, caKey)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	ca := sign(root, root, &caKey.PublicKey)
	cert := sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, ca, &key.PublicKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte, err error) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	javaStore := func(fill func(jks.KeyStore) error) ([]byte, error) {
		var out bytes.Buffer
		s := jks.New()
		if err := fill(s); err != nil {
			return nil, err
		}
		err := s.Store(&out, []byte(storePassword))
		return out.Bytes(), err
	}
	x509JKS := func(c *x509.Certificate) jks.Certificate { return jks.Certificate{Type: "X.509", Content: c.Raw} }
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	var s tlsStores
	data, err := javaStore(func(s jks.KeyStore) error {
		return s.SetPrivateKeyEntry("node", jks.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: keyDER,
			CertificateChain: []jks.Certificate{x509JKS(cert), x509JKS(ca)}}, []byte(storePassword))
	})
	s.keyJKS = put("key.jks", data, err)
	data, err = javaStore(func(s jks.KeyStore) error {
		return s.SetTrustedCertificateEntry("ca", jks.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: x509JKS(ca)})
	})
	s.trustJKS = put("trust.jks", data, err)
	data, err = pkcs12.Modern.Encode(key, cert, []*x509.Certificate{ca}, storePassword)
	s.keyP12 = put("key.p12", data, err)
	data, err = pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{ca}, storePassword)
	s.trustP12 = put("trust.p12", data, err)
	s.keyPEM = put("key.pem", slices.Concat(text("PRIVATE KEY", keyDER), text("CERTIFICATE", cert.Raw), text("CERTIFICATE", ca.Raw)), nil)
	s.trustPEM = put("trust.pem", text("CERTIFICATE", ca.Raw), nil)
	pair, err := tls.LoadX509KeyPair(s.keyPEM, s.keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	s.client = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	s.client.RootCAs.AddCert(ca)
	return s
}

// tlsZooKeeper is a server that wants certificates on its secure port; the plain
// one is the harness's.
func tlsZooKeeper(t testing.TB, s tlsStores) (z *zookeeper, secure string) {
	t.Helper()
	jars, err := serverJars()
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t, "zookeeper")
	z = &zookeeper{port: freePort(t)}
	secure = strconv.Itoa(freePort(t))
	cfg := []string{"tickTime=500", "minSessionTimeout=1000", "maxSessionTimeout=60000", "admin.enableServer=false", "4lw.commands.whitelist=srvr",
		"maxClientCnxns=0", "forceSync=no", "dataDir=" + dir, "clientPortAddress=127.0.0.1", "clientPort=" + strconv.Itoa(z.port),
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "secureClientPortAddress=127.0.0.1", "secureClientPort=" + secure,
		"authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider", "ssl.clientAuth=need", "ssl.protocol=TLSv1.3", "ssl.enabledProtocols=TLSv1.2,TLSv1.3",
		"ssl.ciphersuites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ssl.clientHostnameVerification=false", "ssl.keyStore.location=" + s.keyJKS, "ssl.keyStore.password=" + storePassword,
		"ssl.trustStore.location=" + s.trustJKS, "ssl.trustStore.password=" + storePassword}
	path := filepath.Join(dir, "zoo.cfg")
	writeFile(t, path, strings.Join(cfg, "\n")+"\n")
	z.proc, err = startProc("zookeeper", filepath.Join(dir, "zookeeper.log"),
		javaCommand(128, jars+"/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", path)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if z.conn != nil {
			z.conn.Close()
		}
		z.proc.kill()
	})
	eventually(t, 60*time.Second, "ZooKeeper serves with TLS", func() error {
		if z.proc.exited() {
			printLog(t, z.proc.logPath, 0)
			t.Fatal("ZooKeeper ended at its start")
		}
		if err := z.serves(); err != nil {
			return err
		}
		// The first handshake of a JVM takes long.
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", "127.0.0.1:"+secure, s.client)
		if err == nil {
			c.Close()
		}
		return err
	})
	return z, "127.0.0.1:" + secure
}

func withZooKeeperTLS(key, trust string) option {
	return withProps("zookeeper.ssl.client.enable", "true", "zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty",
		"zookeeper.ssl.keystore.location", key, "zookeeper.ssl.keystore.password", storePassword,
		"zookeeper.ssl.truststore.location", trust, "zookeeper.ssl.truststore.password", storePassword)
}

// The broker reaches ZooKeeper by TLS with a certificate of its own, out of
// stores of each format and with either version, and what it creates there is
// the certificate's.
func TestZooKeeperTLS(t *testing.T) {
	slow(t)
	stores := newTLSStores(t)
	z, secure := tlsZooKeeper(t, stores)
	for name, o := range map[string][]option{
		"JKS":    {withZooKeeperTLS(stores.keyJKS, stores.trustJKS), withProps("zookeeper.set.acl", "true")},
		"PKCS12": {withZooKeeperTLS(stores.keyP12, stores.trustP12), withProps("zookeeper.ssl.protocol", "TLSv1.3")},
		"PEM": {withZooKeeperTLS(stores.keyPEM, stores.trustPEM), withProps("zookeeper.ssl.keystore.password", "", // Java would decrypt a key that is plain
			"zookeeper.ssl.enabled.protocols", "TLSv1.2",
			"zookeeper.ssl.cipher.suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "zookeeper.ssl.endpoint.identification.algorithm", "")},
	} {
		t.Run(name, func(t *testing.T) {
			chroot := "/" + topicName(t)
			b := startBroker(t, slices.Concat([]option{withZooKeeper(z, chroot)}, o, []option{withProps("zookeeper.connect", secure+chroot)})...)
			w, topic := dial(t, b), topicName(t)
			createTopic(t, b, topic, 1)
			produce(t, w, topic, 0, batch{recs: values(now, "a", "b")}.bytes())
			wantStrings(t, "values", plain(records(t, readAll(t, w, topic, 0, 0))), []string{"a", "b"})
			if acl, _, err := z.client(t).GetACL(chroot + "/brokers/ids"); name != "JKS" && (err != nil || !slices.Equal(acl, zk.WorldACL(zk.PermAll))) ||
				name == "JKS" && (err != nil || !slices.Contains(acl, zk.ACL{Perms: zk.PermAll, Scheme: "x509", ID: "CN=node"})) {
				t.Errorf("access list %v, %v", acl, err)
			}
			b.stop(t)
		})
	}
}

// What does not fit ends the start within zookeeper.connection.timeout.ms, and
// says what to change.
func TestZooKeeperTLSRefused(t *testing.T) {
	slow(t)
	onlyKbroker(t, "Apache Kafka tries for as long and prints a stack")
	stores, others := newTLSStores(t), newTLSStores(t)
	z, secure := tlsZooKeeper(t, stores)
	for _, c := range []struct {
		name, names string
		connect     string
		props       option
	}{
		{"trust", "add the authority of ZooKeeper's certificate to zookeeper.ssl.truststore.location=" + others.trustP12, secure, withZooKeeperTLS(stores.keyJKS, others.trustP12)},
		{"key", "ZooKeeper refuses the certificate in zookeeper.ssl.keystore.location=" + others.keyPEM, secure, withZooKeeperTLS(others.keyPEM, stores.trustPEM)},
		{"no key", "set zookeeper.ssl.keystore.location", secure, withProps("zookeeper.ssl.client.enable", "true", "zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty",
			"zookeeper.ssl.truststore.location", stores.trustPEM)},
		{"name", "zookeeper.ssl.endpoint.identification.algorithm", strings.Replace(secure, "127.0.0.1", "localhost", 1), withZooKeeperTLS(stores.keyJKS, stores.trustJKS)},
		{"TLS to the plain port", "secureClientPort", z.addr(), withZooKeeperTLS(stores.keyJKS, stores.trustJKS)},
		{"plain to the TLS port", "zookeeper.ssl.client.enable=true", secure, withProps()},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, withZooKeeper(z, ""), c.props, withProps("zookeeper.connect", c.connect, "zookeeper.connection.timeout.ms", "4000"))
			b.writeProps(t)
			start := time.Now()
			said := exitsAtOnce(t, c.names, b.propsPath())
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
			if strings.Contains(said, storePassword) {
				t.Errorf("a password is shown:\n%s", said)
			}
		})
	}
}

// Digest credentials own what is created with zookeeper.set.acl, over a restart.
func TestZooKeeperDigest(t *testing.T) {
	slow(t)
	onlyKbroker(t, "Apache Kafka has no key for them")
	b := zkBroker(t, withProps("zookeeper.set.acl", "true", "kbroker.zookeeper.digest", "kafka:"+storePassword))
	createTopic(t, b, topicName(t), 1)
	c := b.zk.client(t)
	if _, err := c.Set(b.chroot()+"/brokers/topics", nil, -1); err != zk.ErrNoAuth {
		t.Errorf("a stranger writes: %v", err)
	}
	if _, _, err := c.Get(b.chroot() + "/brokers/topics"); err != nil {
		t.Errorf("a stranger does not read: %v", err)
	}
	b.stop(t)
	b.start(t)
	createTopic(t, b, topicName(t), 1)
	b.stop(t)
	b.props["kbroker.zookeeper.digest"] = "kafka:another1"
	b.writeProps(t)
	if said := exitsAtOnce(t, "not authorised: the znode is another user's; set kbroker.zookeeper.digest", b.propsPath()); strings.Contains(said, "another1") {
		t.Errorf("a password is shown:\n%s", said)
	}
	b.props["kbroker.zookeeper.digest"] = ""
	b.writeProps(t)
	exitsAtOnce(t, fmt.Sprintf("zookeeper.set.acl=%s", b.props["zookeeper.set.acl"]), b.propsPath())
}
