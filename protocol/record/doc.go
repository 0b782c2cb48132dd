// Package record is the record batch: Kafka's unit of data on the wire and on
// disk, in its format 2 and in the two older ones. It owns their layout, their
// checks, their codecs and the conversion between them. It never assigns a
// batch its place in a log, and it never does I/O: bytes in, bytes out.
package record
