package zkmeta

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Sanitize makes a user name or client id a znode's name, by Kafka's rule: all
// but letters, digits, '.', '-' and '_' of ASCII is percent-encoded.
func Sanitize(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	// What is not UTF-8 Java would never have: it becomes U+FFFD.
	for _, r := range name {
		var buf [utf8.UTFMax]byte
		for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
				b.WriteByte(c)
			} else {
				b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			}
		}
	}
	return b.String()
}

// Desanitize undoes Sanitize. As Kafka's, it reads a plus as a space.
func Desanitize(name string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '+':
			b.WriteByte(' ')
		case '%':
			if i+2 >= len(name) || unhex(name[i+1]) < 0 || unhex(name[i+2]) < 0 {
				return "", fmt.Errorf("%q is not a sanitized name: bad escape at %d", clip(name), i)
			}
			b.WriteByte(byte(unhex(name[i+1])<<4 | unhex(name[i+2])))
			i += 2
		default:
			b.WriteByte(name[i])
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
