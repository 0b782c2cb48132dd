// Package metadata is what clients are told of the cluster: brokers, topics
// and leaders as the controller's UpdateMetadata requests say. It never asks
// ZooKeeper.
package metadata
