// Package coordinator is the contract between a coordinator's shard, a pure
// machine, and the driver that runs it on a partition of an internal topic
// (coordinator/shards). A request becomes records and replies; the records are
// appended to the partition, and replaying them is all that ever changes the
// shard's durable state.
package coordinator
