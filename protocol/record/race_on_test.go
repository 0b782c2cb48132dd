//go:build race

package record

// raceEnabled: the race detector drops pooled objects at random, so that only
// what uses no pool can be counted.
const raceEnabled = true
