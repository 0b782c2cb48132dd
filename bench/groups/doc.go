// Package groups is the load that consumers put on a group coordinator: groups
// that join and lose members, heartbeats of many groups, commits, and a log of
// commits to be loaded. It talks to one broker through raw frames, so that the
// broker sets the pace; what it gets is checked. It starts no broker.
package groups
