// Package embedded is the metadata store of a broker without ZooKeeper: the
// same tree, versions, sessions and watches, kept in one crash-safe file that
// one process at a time may use. Memory makes the same thing without a file,
// for any number of stores that share it and with faults on demand: the twin
// that tests use in place of an ensemble.
//
// It never talks to another process.
package embedded
