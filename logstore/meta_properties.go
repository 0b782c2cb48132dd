package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/internal/vfs"
)

const metaPropertiesFile = "meta.properties"

// ErrMetaProperties marks a log directory that is not this broker's, or whose
// meta.properties cannot be read: the broker must not start on it.
var ErrMetaProperties = errors.New("log directory does not fit this broker")

// metaProperties says to whom a log directory belongs. Only version 0 exists
// here; version 1 is KRaft's, and Apache Kafka with ZooKeeper refuses it too.
type metaProperties struct {
	BrokerID    cluster.BrokerID // NoBroker: not said
	ClusterID   string           // "": not said
	DirectoryID string           // "": none; kept as it is for a later migration to KRaft
}

// parseMetaProperties reads a Java properties file. Keys of others are ignored.
func parseMetaProperties(data []byte) (metaProperties, error) {
	m := metaProperties{BrokerID: cluster.NoBroker}
	p, err := config.LoadProperties(bytes.NewReader(data))
	if err != nil {
		return m, fmt.Errorf("%w: %v", ErrMetaProperties, err)
	}
	if v, ok := p["version"]; ok && strings.TrimSpace(v) != "0" {
		if strings.TrimSpace(v) == "1" {
			return m, fmt.Errorf("%w: version=1 is a directory formatted for KRaft; with ZooKeeper or the embedded store only version=0 can be used", ErrMetaProperties)
		}
		return m, fmt.Errorf("%w: unknown version %.40q", ErrMetaProperties, v)
	}
	if v, ok := p["broker.id"]; ok {
		id, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32)
		if err != nil || id < 0 {
			return m, fmt.Errorf("%w: broker.id %.40q is not a broker id", ErrMetaProperties, v)
		}
		m.BrokerID = cluster.BrokerID(id)
	}
	m.ClusterID, m.DirectoryID = p["cluster.id"], p["directory.id"]
	return m, nil
}

func (m metaProperties) encode() []byte {
	var b strings.Builder
	b.WriteString("version=0\n")
	if m.BrokerID >= 0 {
		fmt.Fprintf(&b, "broker.id=%d\n", m.BrokerID)
	}
	if m.ClusterID != "" {
		b.WriteString("cluster.id=" + escapeProperty(m.ClusterID) + "\n")
	}
	if m.DirectoryID != "" {
		b.WriteString("directory.id=" + escapeProperty(m.DirectoryID) + "\n")
	}
	return []byte(b.String())
}

// escapeProperty writes a value so that Java's Properties.load gives it back.
func escapeProperty(v string) string {
	var b strings.Builder
	for i, r := range v {
		switch {
		case r == '\\' || r == '#' || r == '!' || r == '=' || r == ':' || (r == ' ' && i == 0):
			b.WriteString("\\" + string(r))
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || (r > 0x7e && r < 0x10000):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// check compares with what the broker is: a negative id and an empty cluster id
// are not compared, nor what the file does not say.
func (m metaProperties) check(path string, id cluster.BrokerID, clusterID string) error {
	if clusterID != "" && m.ClusterID != "" && m.ClusterID != clusterID {
		return fmt.Errorf("%s: %w: it belongs to cluster %q, this is cluster %q", path, ErrMetaProperties, m.ClusterID, clusterID)
	}
	if id >= 0 && m.BrokerID >= 0 && m.BrokerID != id {
		return fmt.Errorf("%s: %w: it belongs to broker %d, this is broker %d", path, ErrMetaProperties, m.BrokerID, id)
	}
	return nil
}

// readMetaProperties reads the meta.properties of a log directory; false when
// there is none.
func readMetaProperties(f vfs.FS, dir string) (metaProperties, bool, error) {
	path := filepath.Join(dir, metaPropertiesFile)
	data, err := vfs.ReadFile(f, path, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return metaProperties{BrokerID: cluster.NoBroker}, false, nil
	}
	if err != nil {
		return metaProperties{}, false, err
	}
	m, err := parseMetaProperties(data)
	if err != nil {
		return metaProperties{}, false, fmt.Errorf("%s: %w", path, err)
	}
	return m, true, nil
}

func writeMetaProperties(f vfs.FS, dir string, m metaProperties) error {
	return vfs.WriteFileAtomic(f, filepath.Join(dir, metaPropertiesFile), m.encode())
}

// ensureMetaProperties checks that a log directory is the broker's and makes its
// meta.properties say so in full; one that says it already is left untouched.
// Where several directories are to be checked, all should be read and checked
// before the first is written.
func ensureMetaProperties(f vfs.FS, dir string, id cluster.BrokerID, clusterID string) error {
	m, found, err := readMetaProperties(f, dir)
	if err != nil {
		return err
	}
	if err := m.check(filepath.Join(dir, metaPropertiesFile), id, clusterID); err != nil {
		return err
	}
	want := m
	if id >= 0 {
		want.BrokerID = id
	}
	if clusterID != "" {
		want.ClusterID = clusterID
	}
	if found && want == m {
		return nil
	}
	return writeMetaProperties(f, dir, want)
}
