package logstore

import (
	"fmt"
	"path/filepath"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/internal/vfs"
)

// Identity is whom log directories belong to, as far as they say.
type Identity struct {
	BrokerID  cluster.BrokerID // NoBroker: not said
	ClusterID string           // "": not said
}

// ReadIdentity reads the meta.properties of the directories before a Store is
// opened on them: a broker without a configured id takes the stored one. It
// fails where the directories contradict each other. One that cannot be read is
// passed over here; Open takes it offline or refuses it.
func ReadIdentity(f vfs.FS, dirs []string) (Identity, error) {
	id := Identity{BrokerID: cluster.NoBroker}
	for _, dir := range dirs {
		m, found, err := readMetaProperties(f, dir)
		if err != nil || !found {
			continue
		}
		if err := m.check(filepath.Join(dir, metaPropertiesFile), id.BrokerID, id.ClusterID); err != nil {
			return id, fmt.Errorf("%w; another of log.dirs says so", err)
		}
		if m.BrokerID >= 0 {
			id.BrokerID = m.BrokerID
		}
		if m.ClusterID != "" {
			id.ClusterID = m.ClusterID
		}
	}
	return id, nil
}
