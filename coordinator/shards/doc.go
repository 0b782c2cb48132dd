// Package shards runs the shards of a coordinator, pure machines
// (coordinator.Machine), each on a partition of an internal topic that this
// broker leads: it loads them from their log, appends what they decide, answers
// when that is committed and fires their deadlines. It decides nothing about groups,
// and knows no client.
package shards
