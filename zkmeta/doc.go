// Package zkmeta is the contract of the metadata store: the znodes that a
// ZooKeeper-mode Kafka 3.9 cluster keeps (paths, JSON, access lists) and the
// sessions, conditional writes and watches through which they are reached.
//
// It owns no connection, file, goroutine or clock: zkmeta/client reaches
// ZooKeeper, zkmeta/embedded keeps the same tree in one local file, and both
// pass the contract suite in zkmeta/zkmetatest.
package zkmeta
