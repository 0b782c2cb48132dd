package keystore

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Store is a file with keys or trusted certificates, and how to read it.
type Store struct {
	// Prefix is that of the store's keys in the configuration, for errors:
	// "ssl.keystore." before location, password and type.
	Prefix string
	// Location is the file.
	Location string
	// Type is JKS, PKCS12 or PEM in any case; empty: told by the end of the
	// file's name, .jks, .p12 or .pem. As in Java, a JKS may turn out to be a
	// PKCS12 and the other way round: keytool writes PKCS12 into .jks files.
	Type string
	// Password protects the file, or the key of a PEM.
	Password string
	// KeyPassword protects a key within the file; empty: Password does.
	KeyPassword string
	// KeyPasswordName is the configuration key of KeyPassword, if it has one.
	KeyPasswordName string
}

// maxFile bounds what is read.
const maxFile = 16 << 20

// Keys are the store's private keys with their certificate chains, one at least.
func (s Store) Keys() ([]tls.Certificate, error) {
	kind, data, err := s.read()
	if err != nil {
		return nil, err
	}
	var pairs []tls.Certificate
	switch kind {
	case "JKS":
		pairs, err = jksKeys(data, s.Password, s.keyPassword())
	case "PKCS12":
		pairs, err = pkcs12Keys(data, s.Password)
	default:
		var pair tls.Certificate
		pair, err = KeyFromPEM(data, s.keyPassword())
		pairs = []tls.Certificate{pair}
	}
	if err != nil {
		return nil, s.explain(err)
	}
	return pairs, nil
}

// Trust is the store's trusted certificates, one at least.
func (s Store) Trust() (*x509.CertPool, error) {
	kind, data, err := s.read()
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	switch kind {
	case "JKS":
		certs, err = jksTrust(data, s.Password)
	case "PKCS12":
		certs, err = pkcs12Trust(data, s.Password)
	default:
		certs, err = TrustFromPEM(data)
	}
	if err == nil && len(certs) == 0 {
		err = errNoTrust
	}
	if err != nil {
		return nil, s.explain(err)
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, nil
}

func (s Store) keyPassword() string {
	if s.KeyPassword != "" {
		return s.KeyPassword
	}
	return s.Password
}

var (
	errPassword    = errors.New("wrong password")
	errKeyPassword = errors.New("wrong password of the key")
	errNoTrust     = errors.New("it holds no trusted certificate; add the authority's: keytool -importcert -alias ca -file ca.crt -keystore STORE")
	errNoKey       = errors.New("it holds no private key with its certificate; name the store with this broker's key")
)

// explain puts the configuration key and the file in front, and adds what to do
// about a password.
func (s Store) explain(err error) error {
	switch {
	case errors.Is(err, errPassword) && s.Password == "":
		return s.locate("it needs a password or is damaged; set " + s.Prefix + "password")
	case errors.Is(err, errPassword):
		return s.locate(s.Prefix + "password does not open it, or it is damaged; check both with keytool -list -keystore")
	case errors.Is(err, errKeyPassword):
		name := s.KeyPasswordName
		switch {
		case name == "":
			return s.locate(s.Prefix + "password does not open the key in it; give the key the store's password: keytool -keypasswd")
		case s.KeyPassword == "":
			return s.locate("the key in it has a password of its own; set " + name)
		}
		return s.locate(name + " does not open the key in it")
	}
	return s.locate(err.Error())
}

func (s Store) locate(problem string) error {
	return fmt.Errorf("%slocation=%s: %s", s.Prefix, s.Location, problem)
}

// read returns the file and its kind.
func (s Store) read() (kind string, data []byte, err error) {
	if kind, err = s.kind(); err != nil {
		return "", nil, err
	}
	if data, err = readFile(s.Location); err != nil {
		return "", nil, s.locate(err.Error())
	}
	if kind == "PEM" {
		return kind, data, nil
	}
	switch found := magicOf(data); found {
	case "JKS", "PKCS12":
		return found, data, nil
	case "PEM":
		return "", nil, s.locate("it is a PEM file; set " + s.Prefix + "type=PEM")
	case "JCEKS":
		return "", nil, s.locate("it is a JCEKS store, which is not supported; convert it: keytool -importkeystore -srcstoretype JCEKS -deststoretype PKCS12")
	}
	return "", nil, s.locate("it is no " + kind + " store, or is damaged; keytool -list -keystore tells which")
}

// kind is what type or the file's name say.
func (s Store) kind() (string, error) {
	switch kind := strings.ToUpper(s.Type); kind {
	case "JKS", "PKCS12", "PEM":
		return kind, nil
	case "":
	default:
		return "", fmt.Errorf("%stype=%s: not supported; write JKS, PKCS12 or PEM, and convert other stores with keytool -importkeystore -deststoretype PKCS12", s.Prefix, s.Type)
	}
	switch filepath.Ext(s.Location) {
	case ".jks":
		return "JKS", nil
	case ".p12":
		return "PKCS12", nil
	case ".pem":
		return "PEM", nil
	}
	return "", s.locate("its name does not tell the type of the store; set " + s.Prefix + "type to JKS, PKCS12 or PEM")
}

func magicOf(data []byte) string {
	switch text := string(data[:min(len(data), 4)]); {
	case text == "\xfe\xed\xfe\xed":
		return "JKS"
	case text == "\xce\xce\xce\xce":
		return "JCEKS"
	case strings.HasPrefix(text, "\x30"): // an ASN.1 sequence
		return "PKCS12"
	case strings.Contains(string(data[:min(len(data), 4096)]), "-----BEGIN "):
		return "PEM"
	}
	return ""
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file; correct the path")
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("the file may not be read; give the broker's user the right to")
	case err != nil:
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.New("it is no regular file; correct the path")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has more than %d MiB, more than a store has; correct the path", maxFile>>20)
	}
	return data, nil
}

// pair puts a key and its chain together: the certificate of the key, its
// issuer, and so on, out of certs in any order.
func pair(key any, certs []*x509.Certificate) (tls.Certificate, error) {
	signer, ok := key.(crypto.Signer)
	if !ok {
		return tls.Certificate{}, fmt.Errorf("the key in it, a %T, cannot be used for TLS; use RSA, EC or Ed25519", key)
	}
	public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok {
		return tls.Certificate{}, fmt.Errorf("the key in it, a %T, cannot be used for TLS; use RSA, EC or Ed25519", key)
	}
	out := tls.Certificate{PrivateKey: key}
	next := func(c *x509.Certificate) bool { return public.Equal(c.PublicKey) }
	rest := append([]*x509.Certificate(nil), certs...)
	for {
		i := indexOf(rest, next)
		if i < 0 {
			break
		}
		c := rest[i]
		rest = append(rest[:i], rest[i+1:]...)
		if out.Leaf == nil {
			out.Leaf = c
		}
		out.Certificate = append(out.Certificate, c.Raw)
		next = func(issuer *x509.Certificate) bool {
			return bytes.Equal(c.RawIssuer, issuer.RawSubject) && c.CheckSignatureFrom(issuer) == nil
		}
	}
	if out.Leaf == nil {
		return tls.Certificate{}, errors.New("none of its certificates belongs to its private key; import the key's certificate")
	}
	return out, nil
}

func indexOf(certs []*x509.Certificate, found func(*x509.Certificate) bool) int {
	for i, c := range certs {
		if found(c) {
			return i
		}
	}
	return -1
}
