//go:build race

package protocol

// underRace: the race detector allocates on its own account and is slow.
const underRace = true
