// Package partition is one replica's replication state: LEO, HW, the ISR and
// the role under a leader epoch. It decides on values and never touches a log,
// a clock, the network or a lock; partition/replica binds it to all of these.
package partition
