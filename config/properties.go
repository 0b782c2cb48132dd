package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/magiconair/properties"
)

// maxPropertiesBytes bounds what ParseProperties reads.
const maxPropertiesBytes = 4 << 20

// ParseProperties reads Java's .properties syntax: comments, continued lines,
// escapes, "=", ":" or a blank after the key; ISO 8859-1 with \u escapes. The
// last value of a key counts.
func ParseProperties(r io.Reader) (Values, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPropertiesBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxPropertiesBytes {
		return nil, fmt.Errorf("%w: a properties file of more than %d bytes", ErrInvalid, maxPropertiesBytes)
	}
	l := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := l.LoadBytes(b)
	if err != nil {
		return nil, fmt.Errorf("%w: not a properties file: %s", ErrInvalid, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	v := make(Values, p.Len())
	for _, k := range p.Keys() {
		s, _ := p.Get(k)
		v[k] = javaTrim(s)
	}
	return v, nil
}

// ParseOverride reads one KEY=VALUE of a command line.
func ParseOverride(s string) (key, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	if key = javaTrim(key); !ok || key == "" {
		return "", "", fmt.Errorf("%w: override %q: write KEY=VALUE", ErrInvalid, s)
	}
	return key, javaTrim(value), nil
}
