package keystore

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jks "github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"
)

const secret = "s3cr€t-wörd"

// family is an authority, one below it, and a certificate of that.
type family struct {
	root, between, leaf *x509.Certificate
	key                 crypto.Signer
}

func newFamily(t testing.TB, key crypto.Signer) family {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	make := func(name string, parent *x509.Certificate, public any, ca bool) *x509.Certificate {
		c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: ca, BasicConstraintsValid: true}
		if parent == nil {
			parent = c
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, public, caKey)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		return c
	}
	f := family{key: key}
	f.root = make("root", nil, caKey.Public(), true)
	f.between = make("between", f.root, caKey.Public(), true)
	f.leaf = make("leaf", f.between, key.Public(), false)
	return f
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func pkcs8Of(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// jksBytes is a JKS with a key, a trusted certificate, or both.
func jksBytes(t testing.TB, f family, password, keyPassword string, withKey, withTrust bool) []byte {
	t.Helper()
	store := jks.New(jks.WithOrderedAliases())
	if withKey {
		chain := []jks.Certificate{{Type: "X509", Content: f.leaf.Raw}, {Type: "X509", Content: f.between.Raw}}
		if err := store.SetPrivateKeyEntry("me", jks.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: pkcs8Of(t, f.key), CertificateChain: chain}, []byte(keyPassword)); err != nil {
			t.Fatal(err)
		}
	}
	if withTrust {
		if err := store.SetTrustedCertificateEntry("ca", jks.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: jks.Certificate{Type: "X509", Content: f.root.Raw}}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := store.Store(&out, []byte(password)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func wantChain(t *testing.T, got []tls.Certificate, err error, f family, length int) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	if len(got) != 1 || len(got[0].Certificate) != length || !bytes.Equal(got[0].Certificate[0], f.leaf.Raw) ||
		length > 1 && !bytes.Equal(got[0].Certificate[1], f.between.Raw) {
		t.Errorf("%d keys, %d certificates", len(got), len(got[0].Certificate))
		return
	}
	if !got[0].PrivateKey.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(f.key.Public()) {
		t.Error("another key")
	}
}

func wantTrust(t *testing.T, pool *x509.CertPool, err error, f family) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	between := x509.NewCertPool()
	between.AddCert(f.between)
	if _, err := f.leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, DNSName: "leaf"}); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	ec := newFamily(t, ecKey(t))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaFamily, edFamily := newFamily(t, rsaKey), newFamily(t, edKey)
	p12, err := pkcs12.Modern.Encode(ec.key, ec.leaf, []*x509.Certificate{ec.root, ec.between}, secret)
	if err != nil {
		t.Fatal(err)
	}
	legacy, err := pkcs12.LegacyDES.Encode(ec.key, ec.between, []*x509.Certificate{ec.leaf}, secret) // in the wrong order
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := pkcs8.MarshalPrivateKey(ec.key, []byte(secret), nil)
	if err != nil {
		t.Fatal(err)
	}
	ecDER, err := x509.MarshalECPrivateKey(ec.key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	chain := func(f family) string { return pemOf("CERTIFICATE", f.leaf.Raw) + pemOf("CERTIFICATE", f.between.Raw) }
	for name, c := range map[string]struct {
		file   string
		data   string
		store  Store
		family family
		length int
	}{
		"jks":                 {"a.jks", string(jksBytes(t, ec, "pässw", "pässw", true, true)), Store{}, ec, 2},
		"jks, key's password": {"a", string(jksBytes(t, rsaFamily, secretLatin, "another", true, false)), Store{Type: "jks", Password: secretLatin, KeyPassword: "another"}, rsaFamily, 2},
		"pkcs12":              {"a.p12", string(p12), Store{Password: secret}, ec, 3},
		"pkcs12 in a jks":     {"a.jks", string(p12), Store{Password: secret}, ec, 3},
		"jks as pkcs12":       {"a.x", string(jksBytes(t, ec, secretLatin, secretLatin, true, false)), Store{Type: "PKCS12", Password: secretLatin}, ec, 2},
		"old pkcs12":          {"a.p12", string(legacy), Store{Password: secret}, ec, 2},
		"pem":                 {"a.pem", chain(ec) + pemOf("PRIVATE KEY", pkcs8Of(t, ec.key)), Store{}, ec, 2},
		"pem of Ed25519":      {"a.pem", pemOf("PRIVATE KEY", pkcs8Of(t, edKey)) + chain(edFamily), Store{}, edFamily, 2},
		"encrypted pem":       {"a.pem", "Bag Attributes\n" + pemOf("ENCRYPTED PRIVATE KEY", encrypted) + chain(ec), Store{Password: secret}, ec, 2},
		"pem by key password": {"a.crt", pemOf("ENCRYPTED PRIVATE KEY", encrypted) + chain(ec), Store{Type: "Pem", KeyPassword: secret}, ec, 2},
		"pem of PKCS1":        {"a.pem", pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)) + pemOf("CERTIFICATE", rsaFamily.leaf.Raw), Store{}, rsaFamily, 1},
		"pem of SEC1":         {"a.pem", pemOf("EC PRIVATE KEY", ecDER) + chain(ec), Store{}, ec, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.store
			s.Location = write(t, c.file, []byte(c.data))
			if name == "jks" {
				s.Password = latin(t, "pässw")
			}
			got, err := s.Keys()
			wantChain(t, got, err, c.family, c.length)
		})
	}
}

const secretLatin = "secretpassword"

// latin undoes what the library does to a password of ours: it takes bytes for
// characters, so what it wrote for the two bytes of an umlaut are two of those.
func latin(t *testing.T, password string) string {
	t.Helper()
	var runes []rune
	for _, b := range []byte(password) {
		runes = append(runes, rune(b))
	}
	return string(runes)
}

func TestTrust(t *testing.T) {
	f := newFamily(t, ecKey(t))
	p12, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{f.root}, secret)
	if err != nil {
		t.Fatal(err)
	}
	both := string(jksBytes(t, f, secretLatin, secretLatin, true, true))
	for name, c := range map[string]struct {
		file, data string
		store      Store
	}{
		"jks":                    {"a.jks", both, Store{Password: secretLatin}},
		"jks without a password": {"a.jks", both, Store{}},
		"pkcs12":                 {"a.p12", string(p12), Store{Password: secret}},
		"pem":                    {"a.pem", "# ours\n" + pemOf("CERTIFICATE", f.root.Raw) + pemOf("PRIVATE KEY", pkcs8Of(t, f.key)), Store{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.store
			s.Location = write(t, c.file, []byte(c.data))
			pool, err := s.Trust()
			wantTrust(t, pool, err, f)
		})
	}
}

// TestErrors: each names the key, the file and what to do, none a password.
func TestErrors(t *testing.T) {
	f, other := newFamily(t, ecKey(t)), newFamily(t, ecKey(t))
	key := string(jksBytes(t, f, secretLatin, "anotherone", true, false))
	p12, err := pkcs12.Modern.Encode(f.key, f.leaf, nil, secret)
	if err != nil {
		t.Fatal(err)
	}
	trustP12, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{f.root}, secret)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := pkcs8.MarshalPrivateKey(f.key, []byte(secret), nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, pkey := pemOf("CERTIFICATE", f.leaf.Raw), pemOf("PRIVATE KEY", pkcs8Of(t, f.key))
	for name, c := range map[string]struct {
		file, data string
		store      Store
		trust      bool
		want       string
	}{
		"no file":               {"", "", Store{}, false, "ssl.keystore.location=LOCATION: there is no such file"},
		"a directory":           {".", "", Store{Type: "JKS"}, false, "no regular file"},
		"too much":              {"a.pem", strings.Repeat("x", maxFile+1), Store{}, false, "more than 16 MiB"},
		"name without a type":   {"a.keystore", key, Store{}, false, "set ssl.keystore.type to JKS, PKCS12 or PEM"},
		"unknown type":          {"a.jks", key, Store{Type: "BCFKS"}, false, "ssl.keystore.type=BCFKS: not supported"},
		"no store":              {"a.jks", "hello", Store{}, false, "it is no JKS store"},
		"a pem":                 {"a.jks", leaf, Store{}, false, "set ssl.keystore.type=PEM"},
		"jceks":                 {"a.jks", "\xce\xce\xce\xce12345", Store{}, false, "JCEKS store"},
		"no password":           {"a.jks", key, Store{}, false, "it needs a password or is damaged; set ssl.keystore.password"},
		"wrong password":        {"a.jks", key, Store{Password: "wrongpass"}, false, "ssl.keystore.password does not open it"},
		"wrong password, trust": {"a.jks", key, Store{Password: "wrongpass"}, true, "ssl.keystore.password does not open it"},
		"wrong p12 password":    {"a.p12", string(p12), Store{Password: "wrongpass"}, false, "ssl.keystore.password does not open it"},
		"key's password":        {"a.jks", key, Store{Password: secretLatin}, false, "keytool -keypasswd"},
		"key's password unset":  {"a.jks", key, Store{Password: secretLatin, KeyPasswordName: "ssl.key.password"}, false, "set ssl.key.password"},
		"wrong key password":    {"a.jks", key, Store{Password: secretLatin, KeyPassword: "wrongpass", KeyPasswordName: "ssl.key.password"}, false, "ssl.key.password does not open the key"},
		"beyond Latin-1":        {"a.jks", key, Store{Password: "wrongpass€"}, false, "beyond Latin-1"},
		"no key, jks":           {"a.jks", string(jksBytes(t, f, secretLatin, "", false, true)), Store{Password: secretLatin}, false, "no private key"},
		"no key, p12":           {"a.p12", string(trustP12), Store{Password: secret}, false, "no private key"},
		"no key, pem":           {"a.pem", leaf, Store{}, false, "no private key"},
		"no trust, jks":         {"a.jks", key, Store{Password: secretLatin}, true, "no trusted certificate"},
		"no trust, p12":         {"a.p12", string(p12), Store{Password: secret}, true, "keytool -importcert"},
		"no trust, pem":         {"a.pem", pkey, Store{}, true, "no trusted certificate"},
		"cut":                   {"a.jks", key[:len(key)-25], Store{Password: secretLatin}, false, "damaged"},
		"another's certificate": {"a.pem", pkey + pemOf("CERTIFICATE", other.leaf.Raw), Store{}, false, "none of its certificates belongs to its private key"},
		"two keys":              {"a.pem", pkey + pkey + leaf, Store{}, false, "several private keys"},
		"encrypted":             {"a.pem", pemOf("ENCRYPTED PRIVATE KEY", encrypted) + leaf, Store{}, false, "set ssl.keystore.password"},
		"encrypted, wrong":      {"a.pem", pemOf("ENCRYPTED PRIVATE KEY", encrypted) + leaf, Store{Password: "wrongpass"}, false, "ssl.keystore.password does not open it"},
		"old encryption": {"a.pem", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n" + leaf,
			Store{}, false, "openssl pkcs8 -topk8"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.store
			s.Prefix = "ssl.keystore."
			switch c.file {
			case "":
				s.Location = filepath.Join(t.TempDir(), "away.jks")
			case ".":
				s.Location = t.TempDir()
			default:
				s.Location = write(t, c.file, []byte(c.data))
			}
			var err error
			if c.trust {
				_, err = s.Trust()
			} else {
				_, err = s.Keys()
			}
			want := strings.ReplaceAll(c.want, "LOCATION", s.Location)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("error %v, want %q", err, want)
			}
			if !strings.HasPrefix(err.Error(), "ssl.keystore.type=") && !strings.HasPrefix(err.Error(), "ssl.keystore.location="+s.Location+": ") {
				t.Errorf("it does not name key and file: %v", err)
			}
			for _, p := range []string{secret, secretLatin, "wrongpass", "anotherone"} {
				if strings.Contains(err.Error(), p) {
					t.Errorf("a password: %v", err)
				}
			}
		})
	}
}

// TestDamaged: bytes changed anywhere end in an error or are of no account, and
// nothing is allocated that is not in the file.
func TestDamaged(t *testing.T) {
	f := newFamily(t, ecKey(t))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := mrand.New(mrand.NewPCG(seed, 0))
	good := jksBytes(t, f, secretLatin, secretLatin, true, true)
	for range 3000 {
		data := bytes.Clone(good)
		for range 1 + r.IntN(3) {
			data[r.IntN(len(data))] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 {
			data = data[:r.IntN(len(data))]
		}
		_, _ = jksKeys(data, secretLatin, secretLatin)
		_, _ = jksTrust(data, "")
	}
	huge := append([]byte("\xfe\xed\xfe\xed\x00\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"), make([]byte, 100)...)
	if n := testing.AllocsPerRun(1, func() {
		if _, err := jksKeys(huge, secretLatin, secretLatin); err != errDamaged {
			t.Errorf("error %v", err)
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// TestKeytool: what Java's own tool writes (testdata/make.sh).
func TestKeytool(t *testing.T) {
	for _, file := range []string{"a.jks", "b.p12", "c.jks"} {
		keys, err := Store{Location: filepath.Join("testdata", file), Password: secretLatin}.Keys()
		if err != nil || len(keys) != 1 || keys[0].Leaf.Subject.CommonName != "leaf" {
			t.Fatalf("%s: %d keys, %v", file, len(keys), err)
		}
		pool, err := Store{Location: filepath.Join("testdata", "trust-"+file), Password: secretLatin}.Trust()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys[0].Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "leaf"}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
