// Package group is a shard of the group coordinator: the members of consumer
// groups and the offsets that they commit, in Kafka's own records.
//
// A group's durable part (its last metadata record, its offsets) is changed by
// Apply alone. What its members are doing right now is volatile: it is built
// from the durable part by Loaded, and losing it costs a rebalance. The package
// appends nothing, reads no clock and authorises nobody.
package group
