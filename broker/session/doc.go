// Package session holds incremental fetch sessions (KIP-227): the partitions
// that a consumer or a follower fetches, remembered between its requests, and
// what it was last told of each. It decides which partitions a request names
// and which of them an answer must hold; it never reads a log.
package session
