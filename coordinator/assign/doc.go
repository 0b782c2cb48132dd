// Package assign gives the partitions of a group's topics to its members: the
// broker's side of KIP-848's assignors. It is pure, and the same input gives the
// same assignment, whatever order it came in.
package assign
