package logstore

import (
	"encoding/json"
	"path/filepath"

	"github.com/kbroker/kbroker/internal/vfs"
)

// bootFile says in which run of the operating system a directory was last opened
// by kbroker. What a process has written survives it in the page cache: only when
// the machine stops as well may the end of a log be missing.
const bootFile = ".kbroker.boot"

type boot struct {
	Version int    `json:"version"`
	ID      string `json:"boot"`
	// Doubt: ends of logs may be missing, and no controller has reckoned with it
	// yet. Neither a clean stop nor another start in the same run ends that.
	Doubt bool `json:"doubt,omitempty"`
}

// readBoot reads what the last start noted; the zero value where that cannot be
// read, or is of a newer version.
func (s *Store) readBoot(d *logDir) boot {
	data, err := vfs.ReadFile(s.fs, filepath.Join(d.path, bootFile), 4<<10)
	var b boot
	if err != nil || json.Unmarshal(data, &b) != nil || b.Version != 1 {
		return boot{}
	}
	return b
}

// settleBoot judges how the last run ended, and notes this one.
func (s *Store) settleBoot() error {
	for _, d := range s.dirs {
		was := s.readBoot(d)
		same := was.ID != "" && was.ID == s.opts.BootID
		is := boot{1, s.opts.BootID, was.Doubt || !d.clean && !same}
		s.stats.Unclean = s.stats.Unclean || is.Doubt
		if s.opts.BootID == "" || d.check() != nil {
			continue
		}
		d.doubt = is.Doubt
		if is == was {
			continue
		}
		if err := s.writeBoot(d, is); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) writeBoot(d *logDir, b boot) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(s.fs, filepath.Join(d.path, bootFile), data); err != nil {
		_ = d.fail("writing "+bootFile, err)
	}
	return nil
}

// Reckoned notes that a controller has heard of an unclean start (Stats.Unclean) and
// given orders since: what it did not trust is in ZooKeeper, so the next start need
// not be doubted for the sake of this one.
func (s *Store) Reckoned() {
	s.reckoned.Do(func() {
		for _, d := range s.dirs {
			if d.doubt && d.check() == nil {
				_ = s.writeBoot(d, boot{1, s.opts.BootID, false})
			}
		}
	})
}
