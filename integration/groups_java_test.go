//go:build integration

package integration

import "testing"

// Groups of the stock Java client: commits, members that join and leave under
// each assignor, static members, a member that polls too seldom, the admin client.
func TestJava39Groups(t *testing.T) {
	slow(t)
	javaCasesOn(t, sharedGroups(t), topicName(t), kafkaVersion, "group-classic-*")
}

func TestJavaNewestGroups(t *testing.T) {
	slow(t)
	javaCasesOn(t, sharedGroups(t), topicName(t), newestJavaVersion, "group-classic-*")
}

// One Java case of groups for the quick run.
func TestJavaNewestGroupCommits(t *testing.T) {
	javaCasesOn(t, sharedGroups(t), topicName(t), newestJavaVersion, "group-classic-commits")
}

// The same under the consumer protocol (KIP-848). Regular expressions that the
// broker resolves are the newer client's only.
func TestJava39ConsumerProtocol(t *testing.T) {
	slow(t)
	javaCasesOn(t, sharedConsumerGroups(t), topicName(t), kafkaVersion, "group-consumer-*")
}

func TestJavaNewestConsumerProtocol(t *testing.T) {
	slow(t)
	javaCasesOn(t, sharedConsumerGroups(t), topicName(t), newestJavaVersion, "group-consumer-*", "group-newest-*")
}

// Members of a group are restarted one by one with the other protocol, and back,
// while they read and commit.
func TestJava39GroupMoves(t *testing.T) {
	slow(t)
	javaCasesOn(t, sharedConsumerGroups(t), topicName(t), kafkaVersion, "group-moves-range")
	javaCasesOn(t, sharedConsumerGroups(t), topicName(t), kafkaVersion, "group-moves-cooperative")
}

func TestJavaNewestGroupMoves(t *testing.T) {
	slow(t)
	javaCasesOn(t, sharedConsumerGroups(t), topicName(t), newestJavaVersion, "group-moves-range")
	javaCasesOn(t, sharedConsumerGroups(t), topicName(t), newestJavaVersion, "group-moves-cooperative")
}
