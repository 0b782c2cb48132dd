// Command drill hurts a running cluster and sees whether it keeps its promises.
//
// It starts three brokers, kbroker or Apache Kafka or a mix of both, and a
// ZooKeeper, puts load on them, and then kills, stops, cuts off, fills, damages
// and restarts them one drill after the other. What was sent, acked and read is
// remembered in a history; after each drill the cluster must have healed within
// a bound, and the history, the log as a new consumer reads it and the files of
// all replicas must agree.
//
// It owns every process, directory, mount and network namespace that it makes,
// and signals nothing else. It never looks inside a broker: no package of this
// module is imported.
package main
