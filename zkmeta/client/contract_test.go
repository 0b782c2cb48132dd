package client

import (
	"sync"
	"testing"
	"time"

	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

// TestContract runs the contract on a real ZooKeeper, each test in a chroot of
// its own and each store through a proxy of its own.
func TestContract(t *testing.T) {
	z := shared.ZooKeeper(t)
	zkmetatest.Run(t, func(t *testing.T) zkmetatest.Subject {
		chroot := chroot()
		var mu sync.Mutex
		proxies := map[zkmeta.Store]*zkmetatest.Proxy{}
		of := func(s zkmeta.Store) *zkmetatest.Proxy {
			mu.Lock()
			defer mu.Unlock()
			return proxies[s]
		}
		return zkmetatest.Subject{
			Open: func(t testing.TB) zkmeta.Store {
				p := zkmetatest.StartProxy(t, z.Addr)
				s, err := Open(Options{Connect: p.Addr + chroot, SessionTimeout: 6 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				proxies[s] = p
				return s
			},
			Cut:    func(_ testing.TB, s zkmeta.Store) { of(s).Set(zkmetatest.Refuse) },
			Heal:   func(_ testing.TB, s zkmeta.Store) { of(s).Set(zkmetatest.Pass) },
			Expire: func(t testing.TB, s zkmeta.Store) { of(s).Expire(t) },
		}
	})
}
