// Package gap produces records at an even pace, notes when each was
// acknowledged, and tells for how long there was no acknowledgement: what a
// producer sees of a broker's death.
package gap
