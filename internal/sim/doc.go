// Package sim is a whole cluster in one thread: the pure cores of partition,
// controller and coordinator/group, with logs in memory, under a seeded network,
// disks that lose what was not synced, and a metadata store with sessions. All of
// a run follows from its seed and its list of faults; it never reads a clock,
// starts a goroutine or draws from another source of luck. docs/simulation.md says how to use it.
package sim
