// Package replica hosts the partitions of this broker: it binds the decisions
// of package partition to the logs of logstore, under the two locks of a
// partition, and wakes the requests that wait for data or for the high
// watermark. It never speaks to the network, to ZooKeeper or to clients.
package replica
