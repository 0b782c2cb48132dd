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
}

// sameBoot reports whether the directory was opened since the machine started. A
// file that cannot be read, or is of a newer version, says no.
func (s *Store) sameBoot(d *logDir) bool {
	if s.opts.BootID == "" {
		return false
	}
	data, err := vfs.ReadFile(s.fs, filepath.Join(d.path, bootFile), 4<<10)
	if err != nil {
		return false
	}
	var b boot
	return json.Unmarshal(data, &b) == nil && b.Version == 1 && b.ID == s.opts.BootID
}

// settleBoot judges how the last run ended, and notes this one.
func (s *Store) settleBoot() error {
	for _, d := range s.dirs {
		same := s.sameBoot(d)
		s.stats.Unclean = s.stats.Unclean || !d.clean && !same
		if same || s.opts.BootID == "" || d.check() != nil {
			continue
		}
		data, err := json.Marshal(boot{1, s.opts.BootID})
		if err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(s.fs, filepath.Join(d.path, bootFile), data); err != nil {
			_ = d.fail("writing "+bootFile, err)
		}
	}
	return nil
}
