//go:build integration

package integration

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// refusal is a kbroker that must not join, and the words that say why.
type refusal struct {
	name  string
	props []string
	says  []string
}

// A kbroker that would harm the cluster ends with one line that says why, before
// it registers: the znodes of the others stay as they are, and they go on failing
// over. (3.9.2 accepts the first two, and its controller then throws at each
// change of the brokers, or sends both brokers' requests to one of them.)
func TestClusterRefuses(t *testing.T) {
	slow(t)
	clusterCase(t)
	c := startCluster(t, kbroker, kbroker, kbroker)
	l := newLoad(t, c, 3)
	first := c.broker(1)
	cases := []refusal{
		{"another name of the inter-broker listener",
			[]string{"listeners", "INTERNAL://127.0.0.1:0", "listener.security.protocol.map", "INTERNAL:PLAINTEXT", "inter.broker.listener.name", "INTERNAL"},
			[]string{"INTERNAL", "inter.broker.listener.name", "broker 1"}},
		{"no inter-broker listener among the advertised ones",
			[]string{"listeners", "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0", "advertised.listeners", "OUT://127.0.0.1:1", "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT"},
			[]string{"no advertised listener named PLAINTEXT", "inter.broker.listener.name"}},
		{"the endpoint of another broker",
			[]string{"listeners", "PLAINTEXT://127.0.0.1:0", "advertised.listeners", "PLAINTEXT://" + first.addr()},
			[]string{first.addr(), "broker 1"}},
		{"the id of another broker",
			[]string{"broker.id", "1", "listeners", "PLAINTEXT://127.0.0.1:0"},
			[]string{"broker.id 1", "registered by another process"}},
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			before := c.registrations(t)
			b := newBroker(t, withKind(kbroker), withZooKeeper(c.zk, ""), withProps(clusterProps...), withProps("broker.id", "9"), withProps(x.props...))
			b.writeProps(t)
			said := exitsAtOnce(t, x.says[0], b.propsPath())
			for _, word := range x.says[1:] {
				if !strings.Contains(said, word) {
					t.Errorf("%q is missing in: %s", word, said)
				}
			}
			wantStrings(t, "registrations", c.registrations(t), before)
		})
	}
	t.Run("a directory of another cluster", func(t *testing.T) {
		other := startBroker(t, withKind(kbroker), withZooKeeper(sharedZooKeeper(t), "/"+strings.ReplaceAll(topicName(t), "/", ".")))
		createTopic(t, other, topicName(t), 2)
		other.stop(t)
		before, files := c.registrations(t), fileNames(t, other.logDirs()[0])
		withZooKeeper(c.zk, "")(other)
		other.props["broker.id"] = "1"
		other.writeProps(t)
		exitsAtOnce(t, "meta.properties", other.propsPath())
		other.props["broker.id"] = "9"
		other.writeProps(t)
		exitsAtOnce(t, "meta.properties", other.propsPath())
		wantStrings(t, "registrations", c.registrations(t), before)
		wantStrings(t, "files", fileNames(t, other.logDirs()[0]), files)
	})
	c.broker(1).proc.kill()
	c.awaitISR(t, l.topic, l.partitions, 2, 3)
	c.start(t, 1)
	l.whole(t)
	l.finish(t)
}

// registrations are the brokers' znodes, each with its session and its text.
func (c *cluster) registrations(t testing.TB) (out []string) {
	t.Helper()
	ids, _, err := c.conn.Children("/brokers/ids")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	for _, id := range ids {
		raw, stat, err := c.conn.Get("/brokers/ids/" + id)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s: czxid %d, session %x, version %d: %s", id, stat.Czxid, stat.EphemeralOwner, stat.Version, raw))
	}
	return out
}

func fileNames(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		names = append(names, fmt.Sprintf("%s %d", path, info.Size()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
