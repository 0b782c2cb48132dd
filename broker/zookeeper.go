package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/clock"
	"github.com/kbroker/kbroker/internal/keystore"
	"github.com/kbroker/kbroker/zkmeta"
	zkclient "github.com/kbroker/kbroker/zkmeta/client"
	"github.com/rs/zerolog"
)

// zooKeeperOptions is what the configuration says of ZooKeeper. Its errors say
// which key is to be changed.
func zooKeeperOptions(c *config.Broker, clk clock.Clock, log zerolog.Logger) (zkclient.Options, error) {
	o := zkclient.Options{
		Connect: c.ZooKeeperConnect, SessionTimeout: c.ZooKeeperSessionTimeout,
		ConnectionTimeout: c.ZooKeeperConnectionTimeout, SetACL: c.ZooKeeperSetACL,
		Logger: log, Clock: clk,
	}
	if err := refuseSASL(os.Getenv("KAFKA_OPTS"), log); err != nil {
		return o, err
	}
	if d := c.ZooKeeperDigest; d != "" {
		if user, password, ok := strings.Cut(d, ":"); !ok || user == "" || password == "" {
			return o, errors.New("kbroker.zookeeper.digest: write USER:PASSWORD")
		}
		o.Auth = []zkclient.Auth{{Scheme: "digest", Credential: []byte(d)}}
	}
	var err error
	if o.TLS, err = zooKeeperTLS(c.ZooKeeperTLS, log); err != nil {
		return o, err
	}
	if o.SetACL && o.Auth == nil && (o.TLS == nil || o.TLS.Certificates == nil) {
		return o, errors.New("zookeeper.set.acl=true: ZooKeeper would not know whose the znodes are; set kbroker.zookeeper.digest, or TLS with a certificate in zookeeper.ssl.keystore.location")
	}
	return o, nil
}

const nettySocket = "org.apache.zookeeper.ClientCnxnSocketNetty"

// zooKeeperTLS is nil when the connection is plain.
func zooKeeperTLS(c config.ZooKeeperTLS, log zerolog.Logger) (*tls.Config, error) {
	switch {
	case !c.Enable:
		if c.KeyStore.Location != "" || c.TrustStore.Location != "" {
			log.Warn().Msg("zookeeper.ssl.* is set, but without zookeeper.ssl.client.enable=true the connection to ZooKeeper is not encrypted")
		}
		return nil, nil
	case c.ClientCnxnSocket == "":
		return nil, fmt.Errorf("zookeeper.ssl.client.enable=true: needs zookeeper.clientCnxnSocket=%s, too", nettySocket)
	case c.ClientCnxnSocket != nettySocket:
		return nil, fmt.Errorf("zookeeper.clientCnxnSocket=%s: TLS goes with %s only", c.ClientCnxnSocket, nettySocket)
	case c.CRL:
		return nil, errors.New("zookeeper.ssl.crl.enable=true: revocation lists are not supported; remove this key and take a revoked authority out of the trust store")
	case c.OCSP:
		return nil, errors.New("zookeeper.ssl.ocsp.enable=true: OCSP is not supported; remove this key and take a revoked authority out of the trust store")
	}
	cfg := &tls.Config{}
	key, names := "zookeeper.ssl.enabled.protocols", c.EnabledProtocols
	if len(names) == 0 {
		key, names = "zookeeper.ssl.protocol", []string{c.Protocol}
	}
	if err := keystore.SetVersions(cfg, names); err != nil {
		return nil, fmt.Errorf("%s=%s: %w", key, strings.Join(names, ","), err)
	}
	if len(c.CipherSuites) > 0 {
		missing, err := keystore.SetCipherSuites(cfg, c.CipherSuites)
		if err != nil {
			return nil, fmt.Errorf("zookeeper.ssl.cipher.suites=%s: %w", strings.Join(c.CipherSuites, ","), err)
		}
		if len(missing) > 0 {
			log.Warn().Strs("missing", missing).Msg("zookeeper.ssl.cipher.suites names some that are not supported; they are left out")
		}
	}
	var err error
	if s := c.KeyStore; s.Location != "" {
		store := keystore.Store{Prefix: "zookeeper.ssl.keystore.", Location: s.Location, Type: s.Type, Password: s.Password}
		if cfg.Certificates, err = store.Keys(); err != nil {
			return nil, err
		}
	}
	if s := c.TrustStore; s.Location != "" {
		store := keystore.Store{Prefix: "zookeeper.ssl.truststore.", Location: s.Location, Type: s.Type, Password: s.Password}
		if cfg.RootCAs, err = store.Trust(); err != nil {
			return nil, err
		}
	}
	switch a := c.EndpointIdentification; {
	case a == "":
		keystore.AnyHostname(cfg)
	case !strings.EqualFold(a, "HTTPS"):
		return nil, fmt.Errorf("zookeeper.ssl.endpoint.identification.algorithm=%s: write HTTPS, or leave it empty to accept any name", a)
	}
	return cfg, nil
}

// noSession says why there is no session with ZooKeeper and what may help.
func noSession(c *config.Broker, err error) error {
	return fmt.Errorf("no session with ZooKeeper within %v (zookeeper.connection.timeout.ms): %w%s", c.ZooKeeperConnectionTimeout, err, remedy(c.ZooKeeperTLS, err))
}

func remedy(c config.ZooKeeperTLS, err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	text := err.Error()
	switch {
	case errors.As(err, &host):
		return "; name the servers in zookeeper.connect as their certificates do, or set zookeeper.ssl.endpoint.identification.algorithm= (empty) to accept any name"
	case errors.As(err, &authority) && c.TrustStore.Location == "":
		return "; put the authority of ZooKeeper's certificate into a store and name that in zookeeper.ssl.truststore.location"
	case errors.As(err, &authority):
		return "; add the authority of ZooKeeper's certificate to zookeeper.ssl.truststore.location=" + c.TrustStore.Location
	case errors.As(err, &invalid):
		return "; renew ZooKeeper's certificate"
	case errors.As(err, &record):
		return "; zookeeper.connect must name the secureClientPort for TLS"
	case strings.Contains(text, "remote error: tls: protocol version"), strings.Contains(text, "remote error: tls: handshake failure"):
		return "; ZooKeeper and kbroker have no TLS version and cipher suite in common, or it asks for a certificate: see zookeeper.ssl.enabled.protocols, .cipher.suites and .keystore.location"
	case strings.Contains(text, "remote error: tls: ") && c.KeyStore.Location == "":
		return "; ZooKeeper asks for a certificate: set zookeeper.ssl.keystore.location"
	case strings.Contains(text, "remote error: tls: "):
		return "; ZooKeeper refuses the certificate in zookeeper.ssl.keystore.location=" + c.KeyStore.Location
	case c.Enable && strings.HasSuffix(text, "EOF"):
		return "; is the port in zookeeper.connect ZooKeeper's secureClientPort?"
	case !c.Enable && strings.HasSuffix(text, "EOF"):
		return "; if the port in zookeeper.connect is a secureClientPort, set zookeeper.ssl.client.enable=true"
	}
	return ""
}

// noAuth says whose a znode may be.
func noAuth(err error) error {
	if !errors.Is(err, zkmeta.ErrNoAuth) {
		return err
	}
	return fmt.Errorf("%w: the znode is another user's; set kbroker.zookeeper.digest or zookeeper.ssl.keystore.location to what the cluster's other brokers have (znodes of SASL users are out of reach)", err)
}

// refuseSASL looks at what the start scripts of Apache Kafka take JVM properties
// from: a JAAS file there with a section for ZooKeeper is how SASL to ZooKeeper
// is configured.
func refuseSASL(kafkaOpts string, log zerolog.Logger) error {
	file, section := "", "Client"
	for _, word := range strings.Fields(kafkaOpts) {
		name, value, _ := strings.Cut(strings.Trim(word, `"'`), "=")
		switch name {
		case "-Djava.security.auth.login.config": // one more = makes it the only file
			file = strings.TrimPrefix(strings.Trim(strings.TrimPrefix(value, "="), `"'`), "file:")
		case "-Dzookeeper.sasl.clientconfig":
			section = value
		}
	}
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		log.Warn().Err(err).Msg("KAFKA_OPTS names a JAAS file that cannot be read; kbroker has no SASL to ZooKeeper")
		return nil
	}
	if hasSection(string(text), section) {
		return fmt.Errorf("KAFKA_OPTS: the section %s of java.security.auth.login.config=%s asks for SASL to ZooKeeper, which is not supported; "+
			"take the section out and use kbroker.zookeeper.digest or a certificate in zookeeper.ssl.keystore.location", section, file)
	}
	return nil
}

var jaasToken = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|[^\s{};="/]+|.`)

// hasSection reports whether a JAAS file has a section, NAME { … };
func hasSection(text, name string) bool {
	last := ""
	for _, token := range jaasToken.FindAllString(text, -1) {
		if strings.TrimSpace(token) == "" || strings.HasPrefix(token, "//") || strings.HasPrefix(token, "/*") {
			continue
		}
		if token == "{" && last == name {
			return true
		}
		last = strings.Trim(token, `"`)
	}
	return false
}
