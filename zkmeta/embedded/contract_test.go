package embedded

import (
	"testing"

	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/zkmetatest"
)

func TestContractMemory(t *testing.T) {
	zkmetatest.Run(t, func(t *testing.T) zkmetatest.Subject {
		m := NewMemory(Options{})
		return zkmetatest.Subject{
			Open:   func(testing.TB) zkmeta.Store { return m.Connect() },
			Cut:    func(_ testing.TB, s zkmeta.Store) { s.(*Store).Disconnect() },
			Heal:   func(_ testing.TB, s zkmeta.Store) { s.(*Store).Reconnect() },
			Expire: func(_ testing.TB, s zkmeta.Store) { s.(*Store).Expire() },
		}
	})
}

func TestContractFile(t *testing.T) {
	zkmetatest.Run(t, func(t *testing.T) zkmetatest.Subject {
		dir := t.TempDir()
		return zkmetatest.Subject{
			Single: true,
			Open: func(t testing.TB) zkmeta.Store {
				s, err := Open(dir, Options{})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Expire: func(_ testing.TB, s zkmeta.Store) { s.(*Store).Expire() },
		}
	})
}
