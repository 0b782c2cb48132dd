package keystore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"software.sslmate.com/src/go-pkcs12"
)

// pkcs12Keys is the key of a PKCS12 store. Java's own have one password for the
// store and the key.
func pkcs12Keys(data []byte, password string) ([]tls.Certificate, error) {
	key, first, others, err := pkcs12.DecodeChain(data, password)
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return nil, errPassword
	case err != nil && strings.Contains(err.Error(), "exactly one key bag"):
		return nil, errors.New("it holds several private keys; leave the one to use: keytool -delete -alias ANOTHER")
	case err != nil && strings.Contains(err.Error(), "private key missing"), err != nil && strings.Contains(err.Error(), "certificate missing"):
		return nil, errNoKey
	case err != nil:
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	p, err := pair(key, append([]*x509.Certificate{first}, others...))
	if err != nil {
		return nil, err
	}
	return []tls.Certificate{p}, nil
}

// pkcs12Trust is the certificates of a PKCS12 store that are marked as trusted.
func pkcs12Trust(data []byte, password string) ([]*x509.Certificate, error) {
	certs, err := pkcs12.DecodeTrustStore(data, password)
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return nil, errPassword
	case err != nil:
		return nil, fmt.Errorf("it cannot be used for trust (%w); make a store of the authorities alone: keytool -importcert -alias ca -file ca.crt -keystore STORE -storetype PKCS12", err)
	}
	return certs, nil
}
