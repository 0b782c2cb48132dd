// Package logstore keeps partitions' logs in Kafka's own files: segments and
// their indexes, recovery, retention, truncation, flushing. It owns everything
// below the log directories; it decides nothing about replication, and it never
// talks to the network, to ZooKeeper or to a client.
//
// Locks, in the order in which they are taken:
//
//	cleaners.choosing the choice of what to compact; held across reads
//	Store.topology  creation and deletion of logs
//	logDir.ckpt     one writer of a directory's checkpoint files
//	Log.flushing    one fsync of a log at a time; held across it
//	Log.append      offsets, writes, rolls, truncation; held across system calls other than fsync
//	Store.idReads   reading of partition.metadata, under none of a log's locks
//	Log.state       memory only, never held across a system call
//	Store.mu, fileCache.mu, indexCache.mu, scheduler.mu, cleaners.mu   memory only
//	disk            places for the calls that wait for a directory's segments; held for one call
//
// Nothing is called out under any of them.
package logstore
