//go:build integration

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// javaLoad is three members of the stock Java client in a program of their own,
// under the consumer protocol. The program checks what groupLoad's members do.
type javaLoad struct {
	*groupLoad
	p *steps
}

const javaLoadMembers = 3

func newJavaLoad(t *testing.T, c *cluster, version string, partitions int) *javaLoad {
	t.Helper()
	l := &javaLoad{groupLoad: layOutGroupLoad(t, c, "consumer", partitions)}
	l.p = startSteps(t, c, version, l.topic, "given-load")
	l.stable(t, time.Now(), 2*time.Minute)
	return l
}

// stable waits until the group is, and has committed all that is there now.
func (l *javaLoad) stable(t testing.TB, after time.Time, limit time.Duration) {
	t.Helper()
	adm := kadm.NewClient(l.c.client(t))
	defer adm.Close()
	var ends kadm.ListedOffsets
	eventually(t, time.Until(after.Add(limit)), "the group is stable and commits", func() error {
		if l.p.exited() {
			t.Fatalf("the program ended with code %d", l.p.exitCode())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if ends == nil {
			got, err := adm.ListEndOffsets(ctx, l.topic)
			if err == nil {
				err = got.Error()
			}
			if err != nil {
				return err
			}
			ends = got
		}
		if err := l.committedTo(ctx, adm, ends); err != nil {
			return err
		}
		return l.described(adm, javaLoadMembers)
	})
}

func (l *javaLoad) committedTo(ctx context.Context, adm *kadm.Client, ends kadm.ListedOffsets) error {
	got, err := adm.FetchOffsets(ctx, l.group)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		return err
	}
	for p := range int32(l.partitions) {
		end, _ := ends.Lookup(l.topic, p)
		if o, ok := got.Lookup(l.topic, p); !ok || o.At < end.Offset {
			return fmt.Errorf("partition %d: %d is committed of %d", p, o.At, end.Offset)
		}
	}
	return nil
}

func (l *javaLoad) finish(t testing.TB) {
	t.Helper()
	l.ledger.stop(t)
	values := l.c.checkLedgers(t, l.ledger)
	l.stable(t, time.Now(), time.Minute)
	writeFile(t, filepath.Join(l.p.dir, "stop"), "")
	l.p.ends(t)
	adm := kadm.NewClient(l.c.client(t))
	defer adm.Close()
	l.committed(t, adm, values)
	l.c.step(t, "nothing was skipped, lost or turned back: %s", lines(mustReadFile(t, l.p.logPath))[0])
}
