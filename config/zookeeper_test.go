package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kbroker/kbroker/config"
)

func TestZooKeeperTLSFields(t *testing.T) {
	b, w := newBroker(t, config.Values{
		"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
		"zookeeper.ssl.keystore.location": "/k", "zookeeper.ssl.keystore.password": "kp", "zookeeper.ssl.keystore.type": "JKS",
		"zookeeper.ssl.truststore.location": "/t", "zookeeper.ssl.truststore.password": "tp", "zookeeper.ssl.truststore.type": "PEM",
		"zookeeper.ssl.protocol": "TLSv1.3", "zookeeper.ssl.enabled.protocols": "TLSv1.2, TLSv1.3", "zookeeper.ssl.cipher.suites": "A,B",
		"zookeeper.ssl.endpoint.identification.algorithm": "", "zookeeper.ssl.crl.enable": "true", "zookeeper.ssl.ocsp.enable": "true",
		"kbroker.zookeeper.digest": "u:p",
	})
	want := config.ZooKeeperTLS{
		Enable: true, ClientCnxnSocket: "org.apache.zookeeper.ClientCnxnSocketNetty",
		KeyStore: config.KeyStore{Location: "/k", Password: "kp", Type: "JKS"}, TrustStore: config.KeyStore{Location: "/t", Password: "tp", Type: "PEM"},
		Protocol: "TLSv1.3", EnabledProtocols: []string{"TLSv1.2", "TLSv1.3"}, CipherSuites: []string{"A", "B"}, CRL: true, OCSP: true,
	}
	if diff := cmp.Diff(want, b.ZooKeeperTLS); diff != "" {
		t.Error(diff)
	}
	if b.ZooKeeperDigest != "u:p" || len(w) != 0 {
		t.Errorf("digest %q, warnings %v", b.ZooKeeperDigest, w)
	}
	b, _ = newBroker(t, nil)
	if diff := cmp.Diff(config.ZooKeeperTLS{Protocol: "TLSv1.2", EndpointIdentification: "HTTPS"}, b.ZooKeeperTLS); diff != "" {
		t.Error(diff)
	}
}

// SASL to ZooKeeper is configured by JVM properties; whoever writes them into
// the file is told what works instead.
func TestZooKeeperSASLWarning(t *testing.T) {
	_, w := newBroker(t, config.Values{"zookeeper.sasl.client": "true", "java.security.auth.login.config": "/jaas"})
	const text = ": SASL to ZooKeeper is not supported, it is ignored; use kbroker.zookeeper.digest or a certificate in zookeeper.ssl.keystore.location"
	if diff := cmp.Diff([]string{"java.security.auth.login.config" + text, "zookeeper.sasl.client" + text}, warningLines(w)); diff != "" {
		t.Error(diff)
	}
}
