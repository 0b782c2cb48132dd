package logstore

import (
	"testing"

	"github.com/kbroker/kbroker/internal/vfs"
)

// A process that ended without a clean stop has lost nothing if the machine went
// on, and perhaps the ends of its logs if it did not.
func TestUncleanOnlyAfterAnotherBoot(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second string
		clean         bool
		change        func(fs vfs.FS) error
		want          bool
	}{
		{"killed", "a", "a", false, nil, false},
		{"machine stopped", "a", "b", false, nil, true},
		{"stopped, then the machine", "a", "b", true, nil, false},
		{"stopped", "a", "a", true, nil, false},
		{"not known before", "", "a", false, nil, true},
		{"not known now", "a", "", false, nil, true},
		{"never known", "", "", false, nil, true},
		{"broken", "a", "a", false, func(fs vfs.FS) error { return vfs.WriteFileAtomic(fs, "/data/"+bootFile, []byte("{")) }, true},
		{"newer", "a", "a", false, func(fs vfs.FS) error {
			return vfs.WriteFileAtomic(fs, "/data/"+bootFile, []byte(`{"version":2,"boot":"a"}`))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			open := func(id string) *Store {
				s, err := Open(Options{Dirs: []string{"/data"}, FS: fs, BrokerID: 1, ClusterID: "test", BootID: id})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open(c.first)
			if !s.Stats().Unclean {
				t.Error("a new directory is clean")
			}
			s.Reckoned()
			if c.clean {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				s.abandon()
			}
			if c.change != nil {
				if err := c.change(fs); err != nil {
					t.Fatal(err)
				}
			}
			s = open(c.second)
			defer s.Close()
			if got := s.Stats().Unclean; got != c.want {
				t.Errorf("unclean: %v, want %v", got, c.want)
			}
		})
	}
}

// What is in doubt stays so, whatever process comes and goes, until a controller
// has reckoned with it.
func TestDoubtLastsUntilReckoned(t *testing.T) {
	fs := vfs.NewMem()
	open := func(id string, want bool) *Store {
		t.Helper()
		s, err := Open(Options{Dirs: []string{"/data"}, FS: fs, BrokerID: 1, ClusterID: "test", BootID: id})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().Unclean; got != want {
			t.Fatalf("unclean: %v, want %v", got, want)
		}
		return s
	}
	stop := func(s *Store) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open("a", true) // new
	s.Reckoned()
	s.abandon()
	open("b", true).abandon()
	open("b", true).abandon() // killed before it was reckoned with
	stop(open("b", true))     // and stopped
	s = open("b", true)
	s.Reckoned()
	s.Reckoned()
	stop(s)
	stop(open("b", false))
	open("b", false).abandon()
	open("b", false).abandon()
}
