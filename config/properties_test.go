package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kbroker/kbroker/config"
)

// What java.util.Properties of Java 21 makes of these files, values trimmed.
func TestParsePropertiesAsJava(t *testing.T) {
	for text, want := range map[string]config.Values{
		"":                          {},
		"a=1\nb:2\rc 3\r\nd\te":     {"a": "1", "b": "2", "c": "3", "d": "e"},
		"a":                         {"a": ""},
		"a = = b":                   {"a": "= b"},
		"a=:b":                      {"a": ":b"},
		"a : = b":                   {"a": "= b"},
		"# a=1\n  ! b=2\n\fc=3":     {"c": "3"},
		"a=1\na=2":                  {"a": "2"},
		"a=1  ":                     {"a": "1"},
		"a=1#2":                     {"a": "1#2"},
		"log.di\\\n  rs=/a,\\\n /b": {"log.dirs": "/a,/b"},
		"log.di\\\r\n\trs=/a":       {"log.dirs": "/a"},
		"a=1\\\n# no comment\nb=2":  {"a": "1# no comment", "b": "2"},
		"a=1\\\n\nb=2":              {"a": "1", "b": "2"},
		"a=1\\\\\nb=2":              {"a": `1\`, "b": "2"},
		"a=1\\\\\\\nb=2":            {"a": `1\b=2`},
		"\\\n# a comment\nb=2":      {"b": "2"},
		"a=1\\":                     {"a": "1"},
		"=1":                        {"": "1"},
		" : 1":                      {"": "1"},
		"=\na=2":                    {"": "", "a": "2"},
		`a\ b\=c\:d=1`:              {"a b=c:d": "1"},
		`a=\t\x\"\#b\u0041\u00e9`:   {"a": `x"#bA` + "\u00e9"},
		`\u0061\u003d=\ud83d\ude00`: {"a=": "\U0001F600"},
		"a=\xe9":                    {"a": "\u00e9"},
	} {
		got, err := config.ParseProperties(strings.NewReader(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	for text, line := range map[string]string{
		"a=1\nb=\\u12": "line 2:", `a=\u`: "line 1:", `\u12g4=1`: "line 1:", "\n\na=\\\n\\u-123": "line 3:",
	} {
		_, err := config.ParseProperties(strings.NewReader(text))
		if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), line) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want an error of one line that says %s", text, err, line)
		}
	}
}

// A key that does nothing is a warning that says so, or the reason of a refusal
// that does not.
func TestWarningsAsFaults(t *testing.T) {
	_, w := newBroker(t, config.Values{"": "1", "log.retenton.ms": "5", "retention.ms": "5", "num.io.threads": "9"})
	var got []string
	for _, x := range w {
		got = append(got, x.Key+": "+x.Text+" | "+x.Fault())
	}
	want := []string{
		": a value without a key, it is ignored | a value without a key",
		"log.retenton.ms: unknown key, it is ignored; did you mean log.retention.ms? | unknown key; did you mean log.retention.ms?",
		"num.io.threads: kbroker does not act on it yet | kbroker does not act on it yet",
		"retention.ms: is a topic's key, it is ignored; the broker's is log.retention.ms | is a topic's key; the broker's is log.retention.ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
