// Package client is the metadata store over ZooKeeper: one connection object
// per session, calls that never queue while there is no connection, a chroot,
// several servers, digest authentication, access lists and TLS.
//
// It never retries a write, and it never interprets a znode.
package client
