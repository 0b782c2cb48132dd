// Package metric counts what the broker does under Kafka's metric names. It
// keeps numbers; exporting them is the console's work.
package metric
