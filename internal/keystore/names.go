package keystore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// versions are TLS versions as Java calls them.
var versions = map[string]uint16{
	"TLSv1": tls.VersionTLS10, "TLSv1.1": tls.VersionTLS11, "TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13,
}

// SetVersions allows the TLS versions that a list names. "TLS" is what Java
// makes of it, 1.2 and 1.3.
func SetVersions(cfg *tls.Config, names []string) error {
	var allowed []uint16
	for _, name := range names {
		switch v := versions[name]; {
		case v != 0:
			allowed = append(allowed, v)
		case name == "TLS":
			allowed = append(allowed, tls.VersionTLS12, tls.VersionTLS13)
		case strings.HasPrefix(name, "SSL"):
			return fmt.Errorf("%s is broken and not supported; write TLSv1.2 or TLSv1.3", name)
		default:
			return fmt.Errorf("%q is no TLS version; write TLSv1.2 or TLSv1.3", name)
		}
	}
	if len(allowed) == 0 {
		return errors.New("it names no TLS version; write TLSv1.2 or TLSv1.3")
	}
	slices.Sort(allowed)
	allowed = slices.Compact(allowed)
	if low, high := allowed[0], allowed[len(allowed)-1]; int(high-low) != len(allowed)-1 {
		return errors.New("it leaves out a version in between, which is not supported; name that, too, or fewer")
	}
	cfg.MinVersion, cfg.MaxVersion = allowed[0], allowed[len(allowed)-1]
	return nil
}

// SetCipherSuites allows the cipher suites that a list names, and of the versions
// that are allowed already those which these suites belong to. Suites that Go
// does not have are left out and returned. Those of TLS 1.3 stand for each
// other: Go does not choose among them.
func SetCipherSuites(cfg *tls.Config, names []string) (missing []string, err error) {
	known := map[string]*tls.CipherSuite{}
	for _, c := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[c.Name] = c
	}
	var old, tls13 bool
	for _, name := range names {
		c := known[name]
		if rest, ok := strings.CutPrefix(name, "SSL_"); ok && c == nil { // Java's name for the oldest
			c = known["TLS_"+rest]
		}
		switch {
		case name == "TLS_EMPTY_RENEGOTIATION_INFO_SCSV": // a signal, which Go sends
		case c == nil:
			missing = append(missing, name)
		case slices.Contains(c.SupportedVersions, tls.VersionTLS13):
			tls13 = true
		default:
			old = true
			cfg.CipherSuites = append(cfg.CipherSuites, c.ID)
		}
	}
	switch {
	case !old && !tls13:
		return missing, errors.New("none of these cipher suites is supported; leave the key out, or name one as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
	case !tls13:
		cfg.MaxVersion = min(cfg.MaxVersion, tls.VersionTLS12)
	case !old:
		cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS13)
	}
	if cfg.MinVersion > cfg.MaxVersion {
		return missing, errors.New("none of these cipher suites belongs to an allowed TLS version; those of TLSv1.3 are TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384 and TLS_CHACHA20_POLY1305_SHA256")
	}
	return missing, nil
}

// AnyHostname makes a client accept whatever name a trusted certificate has.
func AnyHostname(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true // Go's own check includes the name
	roots := cfg.RootCAs
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		if _, err := s.PeerCertificates[0].Verify(o); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}
