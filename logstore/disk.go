package logstore

import "github.com/kbroker/kbroker/internal/vfs"

// maxDiskCalls is how many calls of a kind wait for a log directory's disk at a
// time. Each holds an OS thread, of which Go allows a process 10,000 and a container
// often fewer: with one for each partition that is written to, or for each consumer
// that reads, a disk that stalls would end the process. More of them than this do not
// make a disk faster.
const maxDiskCalls = 128

// disk bounds the calls that wait for one directory's segments. Each kind has places
// of its own: reads and writes do not wait for an fsync.
type disk struct{ reads, writes, syncs chan struct{} }

func newDisk() disk {
	places := func() chan struct{} { return make(chan struct{}, maxDiskCalls) }
	return disk{places(), places(), places()}
}

// diskFile is a segment's file on such a disk. No call is made within another one, so
// whoever waits for a place waits for a disk only.
type diskFile struct {
	vfs.File
	disk *disk
}

func (f diskFile) ReadAt(b []byte, off int64) (int, error) {
	f.disk.reads <- struct{}{}
	defer func() { <-f.disk.reads }()
	return f.File.ReadAt(b, off)
}

func (f diskFile) WriteAt(b []byte, off int64) (int, error) {
	f.disk.writes <- struct{}{}
	defer func() { <-f.disk.writes }()
	return f.File.WriteAt(b, off)
}

func (f diskFile) Sync() error {
	f.disk.syncs <- struct{}{}
	defer func() { <-f.disk.syncs }()
	return f.File.Sync()
}
