//go:build integration

package integration

import "testing"

// Members of kafkajs, and its admin client on groups.
func TestKafkaJSGroups(t *testing.T) {
	slow(t)
	kafkaJS(t, sharedGroups(t), "groups")
}

// Members of confluent-kafka under the classic protocol.
func TestConfluentKafkaPythonGroups(t *testing.T) {
	slow(t)
	pythonCases(t, sharedGroups(t), "groups.py", "classic")
}

// The same under the consumer protocol (KIP-848).
func TestConfluentKafkaPythonConsumerProtocol(t *testing.T) {
	slow(t)
	pythonCases(t, sharedConsumerGroups(t), "groups.py", "consumer")
}

// Members of kafka-python, whose protocol code is its own.
func TestKafkaPythonGroups(t *testing.T) {
	slow(t)
	pythonCases(t, sharedGroups(t), "kafka_python_groups.py")
}
