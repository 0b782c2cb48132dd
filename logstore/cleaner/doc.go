// Package cleaner decides what compaction leaves of a partition's batches: the
// last record of each key, tombstones and transaction markers until their time
// is over, and what is left of a batch whose place or producer must be
// remembered. Bytes in, bytes out: it reads no log and writes no file.
package cleaner
