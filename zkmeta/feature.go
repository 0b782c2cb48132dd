package zkmeta

import (
	"maps"
	"math"
	"slices"
)

// Feature is what /feature says: the features that the cluster has finalized.
// Kafka 3.9 with ZooKeeper finalizes none.
type Feature struct {
	Version   int  // of the format, 1 or 2
	Enabled   bool // false below inter.broker.protocol.version 2.7
	Finalized map[string]FinalizedFeature
}

// FinalizedFeature is the level of a feature that every broker must support.
// Min is of format 1 only.
type FinalizedFeature struct{ Min, Max int16 }

// Encode writes the znode's data.
func (f Feature) Encode() []byte {
	status := int64(0)
	if f.Enabled {
		status = 1
	}
	return encodeObject(func(b *builder) {
		b.object("features", func() {
			for _, name := range slices.Sorted(maps.Keys(f.Finalized)) {
				b.object(name, func() {
					b.integer("max_version_level", int64(f.Finalized[name].Max))
					if f.Version == 1 {
						b.integer("min_version_level", int64(f.Finalized[name].Min))
					}
				})
			}
		})
		b.integer("version", int64(f.Version))
		b.integer("status", status)
	})
}

// DecodeFeature reads the finalized features.
func DecodeFeature(data []byte) (Feature, error) {
	var f Feature
	err := decodeObject(FeaturePath, data, func(o object) {
		f.Version = int(o.version(1, 2, false))
		f.Enabled = o.integer("status", 0, 1) == 1
		in, ok := o.object("features")
		if !ok {
			o.fail("%q is missing", "features")
			return
		}
		for _, name := range in.names() {
			v, ok := in.asObject(name, in.fields[name])
			if !ok {
				return
			}
			level := FinalizedFeature{Max: int16(v.integer("max_version_level", 1, math.MaxInt16))}
			if f.Version == 1 {
				level.Min = int16(v.integer("min_version_level", 1, int64(level.Max)))
			}
			if f.Finalized == nil {
				f.Finalized = map[string]FinalizedFeature{}
			}
			f.Finalized[name] = level
		}
	})
	return f, err
}
