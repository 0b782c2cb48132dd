package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/rs/zerolog"
)

// The brokers of docker-compose.yml start with what is written there: no key is
// unknown or left alone, ZooKeeper grants the session, and the HTTP listener can
// be reached from outside of the container.
func TestComposeConfiguration(t *testing.T) {
	file, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	services := strings.Split(string(file), "\n  kbroker-")[1:]
	if len(services) < 3 {
		t.Fatalf("%d brokers", len(services))
	}
	const tick = 2 * time.Second // the image's
	for i, text := range services[:3] {
		o := runOptions{strict: true, overrides: []string{"log.dirs=" + t.TempDir()}}
		for _, line := range strings.Split(text, "\n") {
			if kv, ok := strings.CutPrefix(strings.TrimSpace(line), "- --override="); ok {
				o.overrides = append(o.overrides, kv)
			}
		}
		c, err := loadConfig("", o, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if c.ID != cluster.BrokerID(i+1) || c.ZooKeeperSessionTimeout < 2*tick || c.ZooKeeperSessionTimeout > 20*tick || !strings.HasPrefix(c.HTTPListener, "0.0.0.0:") {
			t.Errorf("broker %d: id %d, session %v, HTTP at %s", i+1, c.ID, c.ZooKeeperSessionTimeout, c.HTTPListener)
		}
	}
}
