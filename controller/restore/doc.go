// Package restore decides what the states of partitions become after ZooKeeper was
// restored from an older snapshot: their leader epochs, leaders and ISRs are of before,
// and the logs know better. It is pure; broker drives it for an operator.
//
// Brokers take no role in an epoch older than their log's (package partition), so such
// a partition stands still until its state is set right. To raise the epoch alone is
// not enough: the leader of before may lack what was committed since, and everybody
// else would cut it.
package restore
