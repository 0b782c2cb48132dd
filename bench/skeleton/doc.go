// Command skeleton is the least that can be called a broker: it reads a frame,
// decodes it with kmsg, checks the CRC, sets the base offset in place, writes
// the batch with one pwrite and answers; a Fetch is answered with sendfile. It
// has no metadata, no indexes, no checks of records, no recovery and no
// replication. It is the limit that kbroker is measured against, and nothing
// else: it trusts its client.
package main
