package keystore

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/youmark/pkcs8"
)

// KeyFromPEM reads a private key and its certificates, in any order. The
// password is for an encrypted key.
func KeyFromPEM(text []byte, password string) (tls.Certificate, error) {
	var key any
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE", "X509 CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return tls.Certificate{}, fmt.Errorf("a certificate in it: %w", err)
			}
			certs = append(certs, c)
		case "PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY":
			if key != nil {
				return tls.Certificate{}, errors.New("it holds several private keys; leave the one to use")
			}
			var err error
			if key, err = keyOf(block, password); err != nil {
				return tls.Certificate{}, err
			}
		}
	}
	if key == nil || len(certs) == 0 {
		return tls.Certificate{}, errNoKey
	}
	return pair(key, certs)
}

func keyOf(block *pem.Block, password string) (key any, err error) {
	switch {
	case block.Headers["DEK-Info"] != "":
		return nil, errors.New("its key has the old encryption of OpenSSL; convert it: openssl pkcs8 -topk8")
	case block.Type == "ENCRYPTED PRIVATE KEY" && password == "":
		return nil, errPassword
	case block.Type == "ENCRYPTED PRIVATE KEY":
		if key, err = pkcs8.ParsePKCS8PrivateKey(block.Bytes, []byte(password)); err != nil {
			return nil, errPassword
		}
		return key, nil
	case block.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("its key: %w", err)
	}
	return key, nil
}

// TrustFromPEM reads certificates and passes over anything else.
func TrustFromPEM(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" && block.Type != "X509 CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("a certificate in it: %w", err)
		}
		certs = append(certs, c)
	}
	return certs, nil
}
