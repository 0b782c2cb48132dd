package loop

import (
	"context"
	"fmt"
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
	"github.com/rs/zerolog"
)

// loneOnDisk is a controller over a store in a file, with real fsyncs, and one
// broker.
func loneOnDisk(b *testing.B) *fake {
	b.Helper()
	store, err := embedded.Open(b.TempDir(), embedded.Options{Logger: zerolog.Nop()})
	must(b, err)
	sess, err := store.Session()
	must(b, err)
	must(b, zkmeta.EnsurePaths(context.Background(), sess, zkmeta.PersistentPaths()...))
	f := newFakeOn(b, store, 1)
	l, err := Start(Options{Store: store, Self: 1, Listener: "PLAINTEXT", Logger: zerolog.Nop()})
	must(b, err)
	b.Cleanup(l.Close)
	f.awaitLive(1)
	return f
}

// From the creation of the topic's znode until the broker hosts the partition
// and tells clients of it.
func BenchmarkTopicOfOnePartition(b *testing.B) {
	f := loneOnDisk(b)
	s := f.session()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("t%d", i)
		createTopic(b, s, name, partitions(on(1)))
		f.awaitLeader(tpOf(name, 0), 1, 0)
	}
}

func BenchmarkTopicOf5000Partitions(b *testing.B) {
	f := loneOnDisk(b)
	s := f.session()
	p := map[int32]cluster.Assignment{}
	for i := range int32(5000) {
		p[i] = cluster.Assignment{Replicas: on(1)}
	}
	for i := 0; b.Loop(); i++ {
		createTopic(b, s, fmt.Sprintf("t%d", i), p)
		f.await("all partitions", func() bool { return len(f.meta) == 5000*(i+1) })
	}
}
