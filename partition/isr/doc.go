// Package isr carries proposed ISR changes from the partitions that this broker
// leads to the controller, all that wait in one AlterPartition, one in flight.
// It never decides what to propose.
package isr
