// Package integration holds the black-box tests: real processes, real
// ZooKeeper, stock clients and raw frames, run against kbroker and, by one
// switch, against Apache Kafka 3.9.2 with the same assertions.
//
// It owns the harness that starts and ends those processes. It never imports a
// package of this repository: what a test knows of a broker, it learned over
// the wire, from ZooKeeper or from the files on disk.
package integration
