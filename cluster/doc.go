// Package cluster holds the names and values that every other package agrees
// on: ids, offsets, epochs, a partition's state and its assignment. It holds
// values and their validation only; it never does I/O and imports nothing of
// this module.
package cluster
