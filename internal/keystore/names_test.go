package keystore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestSetVersions(t *testing.T) {
	for list, want := range map[string]struct {
		low, high uint16
		err       string
	}{
		"TLSv1.2":         {low: tls.VersionTLS12, high: tls.VersionTLS12},
		"TLSv1.3,TLSv1.2": {low: tls.VersionTLS12, high: tls.VersionTLS13},
		"TLS":             {low: tls.VersionTLS12, high: tls.VersionTLS13},
		"TLSv1,TLSv1.1":   {low: tls.VersionTLS10, high: tls.VersionTLS11},
		"TLSv1.1,TLSv1.3": {err: "in between"},
		"SSLv3":           {err: "SSLv3 is broken"},
		"tls1":            {err: `"tls1" is no TLS version`},
		"":                {err: "no TLS version"},
	} {
		var cfg tls.Config
		var names []string
		if list != "" {
			names = strings.Split(list, ",")
		}
		err := SetVersions(&cfg, names)
		if want.err == "" && (err != nil || cfg.MinVersion != want.low || cfg.MaxVersion != want.high) ||
			want.err != "" && (err == nil || !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%s: %x to %x, %v", list, cfg.MinVersion, cfg.MaxVersion, err)
		}
	}
}

func TestSetCipherSuites(t *testing.T) {
	gcm := tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
	for _, c := range []struct {
		list      string
		suites    []uint16
		low, high uint16
		missing   string
		err       string
	}{
		{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", []uint16{gcm}, tls.VersionTLS12, tls.VersionTLS12, "", ""},
		{"TLS_AES_256_GCM_SHA384", nil, tls.VersionTLS13, tls.VersionTLS13, "", ""},
		{"TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", []uint16{gcm}, tls.VersionTLS12, tls.VersionTLS13, "", ""},
		{"TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_EMPTY_RENEGOTIATION_INFO_SCSV", []uint16{gcm}, tls.VersionTLS12, tls.VersionTLS12, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", ""},
		{"SSL_RSA_WITH_3DES_EDE_CBC_SHA", []uint16{tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA}, tls.VersionTLS12, tls.VersionTLS12, "", ""},
		{"AES", nil, tls.VersionTLS12, tls.VersionTLS13, "AES", "none of these cipher suites is supported"},
	} {
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}
		missing, err := SetCipherSuites(cfg, strings.Split(c.list, ","))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v", c.list, err)
		}
		if strings.Join(missing, ",") != c.missing || !slices.Equal(cfg.CipherSuites, c.suites) || cfg.MinVersion != c.low || cfg.MaxVersion != c.high {
			t.Errorf("%s: missing %q, suites %v, %x to %x", c.list, missing, cfg.CipherSuites, cfg.MinVersion, cfg.MaxVersion)
		}
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	if _, err := SetCipherSuites(cfg, []string{"TLS_AES_128_GCM_SHA256"}); err == nil || !strings.Contains(err.Error(), "allowed TLS version") {
		t.Errorf("error %v", err)
	}
}

// TestAnyHostname: the name does not matter, the authority does.
func TestAnyHostname(t *testing.T) {
	f := newFamily(t, ecKey(t))
	server := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{f.leaf.Raw, f.between.Raw}, PrivateKey: f.key}}}
	dial := func(root *x509.Certificate, lax bool) error {
		t.Helper()
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "elsewhere"}
		cfg.RootCAs.AddCert(root)
		if lax {
			AnyHostname(cfg)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = tls.Server(b, server).Handshake()
		}()
		err := tls.Client(a, cfg).Handshake()
		a.Close()
		<-done
		return err
	}
	if err := dial(f.root, true); err != nil {
		t.Error(err)
	}
	if err := dial(f.root, false); err == nil {
		t.Error("another name was accepted")
	}
	var unknown x509.UnknownAuthorityError
	if err := dial(newFamily(t, ecKey(t)).root, true); !errors.As(err, &unknown) {
		t.Errorf("another authority: %v", err)
	}
}
