// Package delay holds delayed operations (Kafka's purgatory): requests that
// wait for a key's state to change or for a time-out, at the cost of data and
// not of a goroutine each.
package delay
