package config

import (
	"math"
	"strconv"
	"strings"
)

// value is a parsed value; which field counts depends on the key's type.
type value struct {
	null bool
	n    int64    // Int, Short, Long
	f    float64  // Double
	b    bool     // Boolean
	s    string   // String, Class, Password
	list []string // List
}

func (t Type) String() string {
	names := [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}
	if t < 0 || int(t) >= len(names) {
		return "UNKNOWN"
	}
	return names[t]
}

func (t Type) bits() int {
	switch t {
	case Int:
		return 32
	case Short:
		return 16
	}
	return 64
}

// parseType reads raw as Kafka's ConfigDef does. The second result says what
// is wrong, in Kafka's words, or nothing.
func parseType(t Type, raw string) (value, string) {
	s := javaTrim(raw)
	switch t {
	case Boolean:
		switch {
		case strings.EqualFold(s, "true"):
			return value{b: true}, ""
		case strings.EqualFold(s, "false"):
			return value{}, ""
		}
		return value{}, "Expected value to be either true or false"
	case Int, Short, Long:
		n, err := strconv.ParseInt(s, 10, t.bits())
		if err != nil {
			return value{}, "Not a number of type " + t.String()
		}
		return value{n: n}, ""
	case Double:
		f, ok := parseJavaDouble(s)
		if !ok {
			return value{}, "Not a number of type DOUBLE"
		}
		return value{f: f}, ""
	case List:
		return value{list: splitList(s)}, ""
	case Class:
		if !isClassName(s) {
			return value{}, "Class " + raw + " could not be found."
		}
	}
	return value{s: s}, ""
}

// text is the value as Kafka prints it.
func (v value) text(t Type) string {
	switch t {
	case Boolean:
		return strconv.FormatBool(v.b)
	case Int, Short, Long:
		return strconv.FormatInt(v.n, 10)
	case Double:
		return formatJavaDouble(v.f)
	case List:
		return strings.Join(v.list, ",")
	}
	return v.s
}

// javaTrim takes control characters and blanks off both ends, as
// String.trim does.
func javaTrim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}

// javaSpace is what \s matches in a Java regular expression.
const javaSpace = " \t\n\v\f\r"

// splitList splits at commas and the blanks around them. Empty elements stay,
// an empty string is the empty list.
func splitList(s string) []string {
	if s == "" {
		return nil
	}
	parts := strings.Split(s, ",")
	for i, p := range parts {
		if i > 0 {
			p = strings.TrimLeft(p, javaSpace)
		}
		if i < len(parts)-1 {
			p = strings.TrimRight(p, javaSpace)
		}
		parts[i] = p
	}
	return parts
}

// splitCSV is splitList without empty elements, as Kafka reads listeners and
// directories.
func splitCSV(s string) []string {
	var out []string
	for _, p := range splitList(javaTrim(s)) {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

func isClassName(s string) bool {
	if s == "" {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '$', r > 127:
		default:
			return false
		}
	}
	return true
}

// parseJavaDouble accepts what Double.parseDouble accepts: Go's syntax but for
// its own spellings of infinity and NaN, and with an optional type suffix.
func parseJavaDouble(s string) (float64, bool) {
	unsigned := strings.TrimLeft(s, "+-")
	if len(s)-len(unsigned) > 1 {
		return 0, false
	}
	switch unsigned {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		if s[0] == '-' {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	}
	hex := strings.HasPrefix(unsigned, "0x") || strings.HasPrefix(unsigned, "0X")
	if hex && !strings.ContainsAny(unsigned, "pP") || strings.ContainsAny(unsigned, "_iInN") {
		return 0, false
	}
	if n := len(s); n > 1 && strings.ContainsRune("dDfF", rune(s[n-1])) {
		s = s[:n-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !isRange(err) {
		return 0, false
	}
	return f, true
}

func isRange(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

// formatJavaDouble prints as Double.toString: plain between 10^-3 and 10^7,
// else with an exponent, always with a digit on both sides of the point.
func formatJavaDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	sign := ""
	if exp[0] == '-' {
		sign = "-"
	}
	return mantissa + "E" + sign + strings.TrimLeft(exp[1:], "0")
}
