package logstore

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// cleanShutdownFile says, by being there, that all logs of the directory were
// flushed and closed: nothing needs to be recovered. Kafka before 3.8 wrote it
// empty.
const cleanShutdownFile = ".kafka_cleanshutdown"

type cleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

// writeCleanShutdown comes last of all at a stop, after the logs and the
// checkpoints are durable.
func writeCleanShutdown(f vfs.FS, dir string, epoch cluster.BrokerEpoch) error {
	data, err := json.Marshal(cleanShutdown{BrokerEpoch: int64(epoch)})
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(f, filepath.Join(dir, cleanShutdownFile), data)
}

// readCleanShutdown reports whether the last stop was clean, and the epoch that
// the broker had then: NoBrokerEpoch where the file does not say.
func readCleanShutdown(f vfs.FS, dir string) (clean bool, epoch cluster.BrokerEpoch, err error) {
	data, err := vfs.ReadFile(f, filepath.Join(dir, cleanShutdownFile), 64<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, cluster.NoBrokerEpoch, nil
	case err != nil:
		return false, cluster.NoBrokerEpoch, err
	}
	return true, parseCleanShutdown(data), nil
}

func parseCleanShutdown(data []byte) cluster.BrokerEpoch {
	c := cleanShutdown{BrokerEpoch: int64(cluster.NoBrokerEpoch)}
	if json.Unmarshal(data, &c) != nil {
		return cluster.NoBrokerEpoch
	}
	return cluster.BrokerEpoch(c.BrokerEpoch)
}

// removeCleanShutdown comes before the first change of a log: a mark that a
// power loss brings back would hide what it cost. So the directory is synced.
func removeCleanShutdown(f vfs.FS, dir string) error {
	err := f.Remove(filepath.Join(dir, cleanShutdownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.SyncDir(dir)
}
