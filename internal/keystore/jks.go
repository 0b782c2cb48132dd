package keystore

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"

	jks "github.com/pavlo-v-chernykh/keystore-go/v4"
)

var errDamaged = errors.New("it is damaged: a length in it leads beyond its end")

// jksKeys opens every key of a JKS.
func jksKeys(data []byte, password, keyPassword string) ([]tls.Certificate, error) {
	if _, err := trustedIn(data); err != nil {
		return nil, err
	}
	store, err := openJKS(data, password)
	if err != nil {
		return nil, err
	}
	secret, err := latin1(keyPassword)
	if err != nil {
		return nil, err
	}
	var pairs []tls.Certificate
	for _, alias := range store.Aliases() {
		if !store.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := store.GetPrivateKeyEntry(alias, secret)
		if err != nil {
			return nil, errKeyPassword
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("the key %s in it: %w", alias, err)
		}
		var certs []*x509.Certificate
		for _, c := range entry.CertificateChain {
			cert, err := x509.ParseCertificate(c.Content)
			if err != nil {
				return nil, fmt.Errorf("a certificate of the key %s in it: %w", alias, err)
			}
			certs = append(certs, cert)
		}
		p, err := pair(key, certs)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, p)
	}
	if len(pairs) == 0 {
		return nil, errNoKey
	}
	return pairs, nil
}

// jksTrust is the trusted certificates of a JKS. Without a password it is not
// checked who wrote it, as in Java.
func jksTrust(data []byte, password string) ([]*x509.Certificate, error) {
	raw, err := trustedIn(data)
	if err != nil {
		return nil, err
	}
	if password != "" {
		if _, err := openJKS(data, password); err != nil {
			return nil, err
		}
	}
	var certs []*x509.Certificate
	for _, der := range raw {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("a certificate in it: %w", err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// openJKS verifies a store whose lengths trustedIn has checked.
func openJKS(data []byte, password string) (jks.KeyStore, error) {
	secret, err := latin1(password)
	if err != nil {
		return jks.KeyStore{}, err
	}
	store := jks.New(jks.WithOrderedAliases(), jks.WithCaseExactAliases())
	if err := store.Load(bytes.NewReader(data), secret); err != nil {
		return jks.KeyStore{}, errPassword
	}
	return store, nil
}

// latin1 is a password as the library takes it: a byte for each character.
func latin1(password string) ([]byte, error) {
	out := make([]byte, 0, len(password))
	for _, r := range password {
		if r > 0xff {
			return nil, errors.New("its password has characters beyond Latin-1; convert it: keytool -importkeystore -deststoretype PKCS12")
		}
		out = append(out, byte(r))
	}
	return out, nil
}

// trustedIn walks a JKS and returns its trusted certificates. The library makes
// room for whatever length or count is written in the file, so nothing that has
// not been walked may reach it.
func trustedIn(data []byte) ([][]byte, error) {
	r := &walker{left: data}
	r.skip(4) // magic
	version, entries := r.u32(), r.u32()
	if version != 1 && version != 2 {
		r.bad = true
	}
	var trusted [][]byte
	for ; entries > 0 && !r.bad; entries-- {
		tag := r.u32()
		r.skip(int(r.u16())) // alias
		r.skip(8)            // time
		switch tag {
		case 1:
			r.skip(int(r.u32())) // key
			for n := r.u32(); n > 0 && !r.bad; n-- {
				r.certificate(version)
			}
		case 2:
			trusted = append(trusted, r.certificate(version))
		default:
			r.bad = true
		}
	}
	if r.bad || len(r.left) != 20 { // the digest
		return nil, errDamaged
	}
	return trusted, nil
}

// walker reads big-endian fields; bad tells that the data ended early.
type walker struct {
	left []byte
	bad  bool
}

func (r *walker) skip(n int) []byte {
	if r.bad || n < 0 || n > len(r.left) {
		r.bad = true
		return make([]byte, 4) // for u16 and u32
	}
	out := r.left[:n]
	r.left = r.left[n:]
	return out
}

func (r *walker) u16() uint16 { return binary.BigEndian.Uint16(r.skip(2)) }
func (r *walker) u32() uint32 { return binary.BigEndian.Uint32(r.skip(4)) }

func (r *walker) certificate(version uint32) []byte {
	if version == 2 {
		r.skip(int(r.u16())) // X.509
	}
	return r.skip(int(r.u32()))
}
