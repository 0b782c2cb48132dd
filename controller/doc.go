// Package controller decides what the elected controller of a ZooKeeper-mode
// cluster has to do. It owns the image of what ZooKeeper says and of what each
// incarnation of each broker has acknowledged; it never writes, sends, waits,
// reads a clock or draws a random number: controller/loop does.
//
// It is level-triggered. Facts go into the Image in the past tense. Decide
// compares: states that do not fit the live brokers become conditional writes,
// and whatever a broker's present incarnation has not acknowledged becomes
// sends to it. Settle takes the answers to the writes and Answered those to the
// sends; what depends on a write becomes due only when Settle has taken its
// acceptance, so Settle returns no sends of its own: the next Decide has them.
// An empty plan means that no write is due and nothing is unacknowledged.
package controller
