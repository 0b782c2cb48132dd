// Package epochs is a partition's history of leader epochs: at which offset each
// epoch's records begin. It answers where an epoch ends, on which truncation is
// decided. It holds values only; the file that keeps them is logstore's.
package epochs
