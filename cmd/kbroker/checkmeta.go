package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/kbroker/kbroker/internal/vfs"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/kbroker/kbroker/zkmeta/embedded"
)

// metadataFile is the embedded store, which lies in one of log.dirs.
const metadataFile = "kbroker.meta"

// topics is what the embedded store in one of the directories knows of topics,
// nil when none of them has one, as with ZooKeeper.
func topics(ctx context.Context, dirs []string) (map[string]zkmeta.TopicAssignment, error) {
	var known map[string]zkmeta.TopicAssignment
	for _, dir := range dirs {
		found, err := topicsIn(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		for name, t := range found {
			if known == nil {
				known = map[string]zkmeta.TopicAssignment{}
			}
			known[name] = t
		}
	}
	return known, nil
}

// topicsIn opens a copy of the store in memory, as opening begins a session and
// cuts off a torn end. A damaged one, which the check has told of, knows nothing.
func topicsIn(ctx context.Context, dir string) (map[string]zkmeta.TopicAssignment, error) {
	if embedded.Check(vfs.OS, dir) != nil {
		return nil, nil
	}
	const limit = 1 << 30
	data, err := vfs.ReadFile(vfs.OS, filepath.Join(dir, metadataFile), limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := vfs.NewMem()
	if err := vfs.WriteFileAtomic(m, "/"+metadataFile, data); err != nil {
		return nil, err
	}
	store, err := embedded.Open("/", embedded.Options{FS: m})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	s, err := store.Session()
	if err != nil {
		return nil, err
	}
	names, _, err := s.Children(ctx, zkmeta.TopicsPath, false)
	if errors.Is(err, zkmeta.ErrNoNode) {
		return map[string]zkmeta.TopicAssignment{}, nil
	}
	if err != nil {
		return nil, err
	}
	known := make(map[string]zkmeta.TopicAssignment, len(names))
	for _, name := range names {
		data, _, err := s.Get(ctx, zkmeta.TopicPath(name), false)
		if err != nil {
			return nil, err
		}
		if known[name], err = zkmeta.DecodeTopic(name, data); err != nil {
			return nil, err
		}
	}
	return known, nil
}
