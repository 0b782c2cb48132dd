package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

// maxPropertiesBytes bounds what ParseProperties reads.
const maxPropertiesBytes = 4 << 20

// ParseProperties is LoadProperties with each value trimmed, as Kafka reads its
// configuration.
func ParseProperties(r io.Reader) (Values, error) {
	v, err := LoadProperties(r)
	for key, value := range v {
		v[key] = javaTrim(value)
	}
	return v, err
}

// LoadProperties reads Java's .properties syntax: comments, continued lines,
// escapes, "=", ":" or a blank after the key; ISO 8859-1 with \u escapes. The
// last value of a key counts. As in Java a line may continue within its key, and
// the key may be empty.
func LoadProperties(r io.Reader) (Values, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPropertiesBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxPropertiesBytes {
		return nil, fmt.Errorf("%w: a properties file of more than %d bytes", ErrInvalid, maxPropertiesBytes)
	}
	v := Values{}
	p := propertyLines{rest: b}
	for line, ok := p.next(); ok; line, ok = p.next() {
		rawKey, rawValue := splitProperty(line)
		key, err := unescapeProperty(rawKey)
		if err != nil {
			return nil, fmt.Errorf("%w: not a properties file: line %d: %v", ErrInvalid, p.began, err)
		}
		value, err := unescapeProperty(rawValue)
		if err != nil {
			return nil, fmt.Errorf("%w: not a properties file: line %d: %v", ErrInvalid, p.began, err)
		}
		v[key] = value
	}
	return v, nil
}

// propertyLines takes lines off a file: without comments and blank ones, and
// with continued ones joined. (A lone backslash at the very end is nothing here;
// Java takes it, unless \r\n follows, for an empty key without a value.)
type propertyLines struct {
	rest  []byte
	at    int // lines read
	began int // the first line of what next returned
}

const propertyBlanks = " \t\f"

func (p *propertyLines) next() (line []byte, ok bool) {
	for len(p.rest) > 0 {
		text := trimBlanks(p.physical())
		if len(line) == 0 {
			if p.began = p.at; len(text) == 0 || text[0] == '#' || text[0] == '!' {
				continue
			}
		}
		slashes := 0
		for slashes < len(text) && text[len(text)-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return append(line, text...), true
		}
		line = append(line, text[:len(text)-1]...)
	}
	return line, len(line) > 0
}

// physical takes one line off, which ends in \n, \r or both.
func (p *propertyLines) physical() []byte {
	p.at++
	for i, c := range p.rest {
		if c != '\n' && c != '\r' {
			continue
		}
		line, end := p.rest[:i], i+1
		if c == '\r' && end < len(p.rest) && p.rest[end] == '\n' {
			end++
		}
		p.rest = p.rest[end:]
		return line
	}
	line := p.rest
	p.rest = nil
	return line
}

func trimBlanks(b []byte) []byte {
	for len(b) > 0 && strings.IndexByte(propertyBlanks, b[0]) >= 0 {
		b = b[1:]
	}
	return b
}

// splitProperty parts a line at the first "=", ":" or blank that is not escaped;
// blanks around a separator belong to it.
func splitProperty(line []byte) (key, value []byte) {
	end := 0
	for end < len(line) && strings.IndexByte("=:"+propertyBlanks, line[end]) < 0 {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	key, value = line[:end], trimBlanks(line[end:])
	if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
		value = trimBlanks(value[1:])
	}
	return key, value
}

// unescapeProperty resolves backslashes. \u names one unit of UTF-16.
func unescapeProperty(b []byte) (string, error) {
	units := make([]uint16, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c != '\\' || i+1 == len(b) {
			units = append(units, uint16(c))
			continue
		}
		i++
		switch c = b[i]; c {
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'n':
			c = '\n'
		case 'f':
			c = '\f'
		case 'u':
			hex := b[i+1 : min(i+5, len(b))]
			n, err := strconv.ParseUint(string(hex), 16, 16)
			if err != nil || len(hex) < 4 {
				return "", fmt.Errorf("\\u%s: want four hexadecimal digits", strconv.QuoteToASCII(string(hex)))
			}
			units = append(units, uint16(n))
			i += 4
			continue
		}
		units = append(units, uint16(c))
	}
	return string(utf16.Decode(units)), nil
}

// ParseOverride reads one KEY=VALUE of a command line.
func ParseOverride(s string) (key, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	if key = javaTrim(key); !ok || key == "" {
		return "", "", fmt.Errorf("%w: --override %q: write KEY=VALUE", ErrInvalid, s)
	}
	return key, javaTrim(value), nil
}
