package zkmeta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EncodeEntityConfig writes the data of /config/TYPE/NAME, the keys sorted.
func EncodeEntityConfig(config map[string]string) []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 1)
		b.object("config", func() {
			for _, key := range slices.Sorted(maps.Keys(config)) {
				b.text(key, config[key])
			}
		})
	})
}

// DecodeEntityConfig reads the data of an entity's configs. No data is no
// configs: the parents of nested entities have none.
func DecodeEntityConfig(path string, data []byte) (map[string]string, error) {
	config := map[string]string{}
	if len(data) == 0 {
		return config, nil
	}
	err := decodeObject(path, data, func(o object) {
		o.version(1, 1, true)
		in, _ := o.object("config")
		for _, key := range in.names() {
			config[key] = in.text(key)
		}
	})
	return config, err
}

// ConfigChange is what a notification under /config/changes says: the configs
// of one entity may have changed.
type ConfigChange struct {
	Type ConfigType
	// Name is the rest of the entity's path: "T", "<default>", or
	// "U/clients/C"; users and clients are sanitized.
	Name string
}

// EntityPath is the path of the entity's configs.
func (c ConfigChange) EntityPath() string { return ConfigEntityPath(c.Type, c.Name) }

// Encode writes the notification's data in format 2.
func (c ConfigChange) Encode() []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 2)
		b.text("entity_path", string(c.Type)+"/"+c.Name)
	})
}

// DecodeConfigChange reads a notification, in the formats 1 and 2; name is the
// notification's own.
func DecodeConfigChange(name string, data []byte) (ConfigChange, error) {
	var c ConfigChange
	path := ConfigChangesPath + "/" + name
	err := decodeObject(path, data, func(o object) {
		if o.version(1, 2, false) == 1 {
			c = ConfigChange{ConfigType(o.text("entity_type")), o.text("entity_name")}
			if c.Type != TopicConfigs && c.Type != ClientConfigs {
				o.fail("entity_type %q in format 1", clip(string(c.Type)))
			}
			return
		}
		t, rest, _ := strings.Cut(o.text("entity_path"), "/")
		c = ConfigChange{ConfigType(t), rest}
		if !slices.Contains(ConfigTypes(), c.Type) {
			o.fail("entity_path begins with the unknown type %q", clip(t))
		}
	})
	if err == nil && c.Name == "" {
		err = badZnode(path, errors.New("the entity has no name"))
	}
	if err == nil && ValidatePath(c.EntityPath(), false) != nil {
		err = badZnode(path, fmt.Errorf("%q is not an entity", clip(c.Name)))
	}
	return c, err
}
