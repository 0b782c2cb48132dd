// Package fetcher is the follower side of replication: it keeps fetch sessions
// to leaders, appends what they send and truncates where they say that the logs
// depart. It never leads, and never decides where a log ends: package partition
// does.
package fetcher
