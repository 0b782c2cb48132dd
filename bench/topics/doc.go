// Package topics makes and removes the topics of a run, on any broker.
package topics
