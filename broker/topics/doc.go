// Package topics creates, grows and deletes topics: it validates what is asked,
// places replicas as Kafka does, and writes the topic's znodes. Partitions,
// leaders and the deletion itself are the controller's work, which it never
// waits for.
package topics
