// Package keystore gives crypto/tls what Java's configurations name: key and
// trust stores in JKS, PKCS12 and PEM, TLS versions and cipher suites.
//
// Its errors are for people: they name the configuration key, the file and what
// to do. It never tells a password, writes a store or makes a connection.
package keystore
