package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	zkclient "github.com/kbroker/kbroker/zkmeta/client"
	"github.com/rs/zerolog"
)

// stores are those of internal/keystore: their password is secretpassword.
const stores = "../internal/keystore/testdata/"

// optionsFor is the options for some keys, and what was logged.
func optionsFor(t *testing.T, set config.Values) (zkclient.Options, string, error) {
	t.Helper()
	v := config.Values{"zookeeper.connect": "a:1,b:2/kafka", "log.dirs": "/d"}
	maps.Copy(v, set)
	c, _, err := config.NewBroker(v)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o, err := zooKeeperOptions(c, clock.System{}, zerolog.New(&log))
	return o, log.String(), err
}

// withTLS is a configuration that is right, and changes to it.
func withTLS(kv ...string) config.Values {
	v := config.Values{
		"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": nettySocket,
		"zookeeper.ssl.keystore.location": stores + "a.jks", "zookeeper.ssl.keystore.password": "secretpassword",
		"zookeeper.ssl.truststore.location": stores + "trust-b.p12", "zookeeper.ssl.truststore.password": "secretpassword",
	}
	for i := 0; i < len(kv); i += 2 {
		v[kv[i]] = kv[i+1]
	}
	return v
}

func TestZooKeeperOptions(t *testing.T) {
	o, _, err := optionsFor(t, withTLS("zookeeper.set.acl", "true", "zookeeper.session.timeout.ms", "7000"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Connect != "a:1,b:2/kafka" || !o.SetACL || o.SessionTimeout.Seconds() != 7 || o.Auth != nil {
		t.Errorf("%+v", o)
	}
	if c := o.TLS; len(c.Certificates) != 1 || c.RootCAs == nil || c.MinVersion != tls.VersionTLS12 || c.MaxVersion != tls.VersionTLS12 || c.InsecureSkipVerify {
		t.Errorf("%+v", c)
	}
	o, log, err := optionsFor(t, withTLS("zookeeper.ssl.enabled.protocols", "TLSv1.3,TLSv1.2", "zookeeper.ssl.endpoint.identification.algorithm", "",
		"zookeeper.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256,TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "kbroker.zookeeper.digest", "kafka:x:y"))
	if err != nil {
		t.Fatal(err)
	}
	if c := o.TLS; c.MinVersion != tls.VersionTLS13 || !c.InsecureSkipVerify || c.VerifyConnection == nil || !strings.Contains(log, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256") {
		t.Errorf("%+v, log %s", c, log)
	}
	if len(o.Auth) != 1 || o.Auth[0].Scheme != "digest" || string(o.Auth[0].Credential) != "kafka:x:y" {
		t.Errorf("%+v", o.Auth)
	}
	o, log, err = optionsFor(t, config.Values{"zookeeper.ssl.truststore.location": "/away.jks"})
	if err != nil || o.TLS != nil || !strings.Contains(log, "not encrypted") {
		t.Errorf("%+v, %v, log %s", o.TLS, err, log)
	}
}

func TestZooKeeperOptionsRefused(t *testing.T) {
	for want, set := range map[string]config.Values{
		"needs zookeeper.clientCnxnSocket=" + nettySocket:                                         withTLS("zookeeper.clientCnxnSocket", ""),
		"zookeeper.clientCnxnSocket=x.NIO: TLS goes with " + nettySocket:                          withTLS("zookeeper.clientCnxnSocket", "x.NIO"),
		"zookeeper.ssl.crl.enable=true: revocation lists are not supported":                       withTLS("zookeeper.ssl.crl.enable", "true"),
		"zookeeper.ssl.ocsp.enable=true: OCSP is not supported":                                   withTLS("zookeeper.ssl.ocsp.enable", "true"),
		"zookeeper.ssl.protocol=SSLv3: SSLv3 is broken":                                           withTLS("zookeeper.ssl.protocol", "SSLv3"),
		"zookeeper.ssl.enabled.protocols=TLSv1,TLSv1.3: it leaves out":                            withTLS("zookeeper.ssl.enabled.protocols", "TLSv1,TLSv1.3"),
		"zookeeper.ssl.cipher.suites=NO: none of these":                                           withTLS("zookeeper.ssl.cipher.suites", "NO"),
		"zookeeper.ssl.endpoint.identification.algorithm=HTTP: write HTTPS":                       withTLS("zookeeper.ssl.endpoint.identification.algorithm", "HTTP"),
		"zookeeper.ssl.keystore.location=" + stores + "a.jks: zookeeper.ssl.keystore.password":    withTLS("zookeeper.ssl.keystore.password", "wrong!"),
		"zookeeper.ssl.truststore.location=/away.pem: there is no such file":                      withTLS("zookeeper.ssl.truststore.location", "/away.pem"),
		"zookeeper.ssl.truststore.type=BKS: not supported":                                        withTLS("zookeeper.ssl.truststore.type", "BKS"),
		"kbroker.zookeeper.digest: write USER:PASSWORD":                                           {"kbroker.zookeeper.digest": "wrong!"},
		"zookeeper.set.acl=true: ZooKeeper would not know whose the znodes are; set kbroker.zook": {"zookeeper.set.acl": "true"},
		"or TLS with a certificate in zookeeper.ssl.keystore.location":                            withTLS("zookeeper.set.acl", "true", "zookeeper.ssl.keystore.location", ""),
	} {
		_, _, err := optionsFor(t, set)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "wrong!") || strings.Contains(err.Error(), "secretpassword") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestZooKeeperSASL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jaas.conf")
	for text, refused := range map[string]bool{
		"Client {\n  org.apache.zookeeper.server.auth.DigestLoginModule required username=\"a\";\n};": true,
		"KafkaServer { x required; };\n/* Client { } */ // Client {\n":                                false,
		"KafkaServer{a required u=\"http://b\" v=\"Client {\";};\n\"Client\" {x required;};":          true,
		"KafkaClient { x required; };": false,
		"KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required Client=\"{\"; };\n": false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, opts := range []string{"-Xmx1g -Djava.security.auth.login.config=" + path, "'-Djava.security.auth.login.config==file:" + path + "' -Dx=y"} {
			t.Setenv("KAFKA_OPTS", opts)
			_, _, err := optionsFor(t, nil)
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "the section Client of java.security.auth.login.config="+path+" asks for SASL to ZooKeeper, which is not supported") {
				t.Errorf("%q: error %v", text, err)
			}
		}
		t.Setenv("KAFKA_OPTS", "-Dzookeeper.sasl.clientconfig=Other -Djava.security.auth.login.config="+path)
		if _, _, err := optionsFor(t, nil); err != nil {
			t.Errorf("%q, another section: error %v", text, err)
		}
	}
	t.Setenv("KAFKA_OPTS", "-Djava.security.auth.login.config="+path+".away")
	if _, log, err := optionsFor(t, nil); err != nil || !strings.Contains(log, "no SASL to ZooKeeper") {
		t.Errorf("error %v, log %s", err, log)
	}
}

func TestNoSessionRemedies(t *testing.T) {
	tlsOn := config.ZooKeeperTLS{Enable: true, KeyStore: config.KeyStore{Location: "/k"}, TrustStore: config.KeyStore{Location: "/t"}}
	for _, c := range []struct {
		tls  config.ZooKeeperTLS
		err  error
		want string
	}{
		{tlsOn, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "add the authority of ZooKeeper's certificate to zookeeper.ssl.truststore.location=/t"},
		{config.ZooKeeperTLS{Enable: true}, x509.UnknownAuthorityError{}, "name that in zookeeper.ssl.truststore.location"},
		{tlsOn, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, "zookeeper.ssl.endpoint.identification.algorithm"},
		{tlsOn, x509.CertificateInvalidError{Reason: x509.Expired}, "renew"},
		{tlsOn, tls.RecordHeaderError{}, "secureClientPort"},
		{tlsOn, io.EOF, "is the port in zookeeper.connect ZooKeeper's secureClientPort?"},
		{config.ZooKeeperTLS{}, io.EOF, "set zookeeper.ssl.client.enable=true"},
		{tlsOn, errors.New("remote error: tls: bad certificate"), "ZooKeeper refuses the certificate in zookeeper.ssl.keystore.location=/k"},
		{config.ZooKeeperTLS{Enable: true}, errors.New("remote error: tls: bad certificate"), "set zookeeper.ssl.keystore.location"},
		{tlsOn, errors.New("remote error: tls: protocol version not supported"), "TLS version"},
	} {
		err := noSession(&config.Broker{ZooKeeperTLS: c.tls}, fmt.Errorf("why: %w", c.err))
		if !errors.Is(err, c.err) && !strings.Contains(err.Error(), c.err.Error()) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
	if err := noSession(&config.Broker{}, errors.New("refused")); !strings.HasSuffix(err.Error(), "refused") {
		t.Error(err)
	}
}
