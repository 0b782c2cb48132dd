package config_test

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/config"
)

func lines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, s.Text())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// testdata/values.txt says of each key which of many values Kafka 3.9.2
// accepts: types and ranges in one.
func TestValuesAcceptedAsByKafka(t *testing.T) {
	all := lines(t, "testdata/values.txt")
	var candidates []string
	for _, q := range strings.Fields(all[0])[1:] {
		c, err := strconv.Unquote(strings.ReplaceAll(q, `\s`, " "))
		if err != nil {
			t.Fatal(err)
		}
		candidates = append(candidates, c)
	}
	seen := 0
	for _, line := range all[1:] {
		f := strings.Fields(line)
		find := config.BrokerKey
		if f[0] == "topic" {
			find = config.TopicKey
		}
		k, ok := find(f[1])
		if !ok {
			t.Errorf("no %s key %s", f[0], f[1])
			continue
		}
		seen++
		for i, c := range candidates {
			err := k.Validate(c)
			if want := f[2][i] == '+'; (err == nil) != want && !known(f[1], c) {
				t.Errorf("%s %s=%q: accepted by Kafka %v, by us %v", f[0], f[1], c, want, err)
			}
		}
	}
	if seen < 340 {
		t.Errorf("only %d keys compared", seen)
	}
}

// known are differences that are meant: KRaft's lists are refused whole when
// they are set, so that their elements need no check.
func known(key, _ string) bool {
	return key == "controller.quorum.voters" || key == "controller.quorum.bootstrap.servers"
}

// testdata/doubles.txt: what Double.parseDouble and Double.toString make of
// odd spellings. (1e23 is not there: it depends on the JDK.)
func TestDoubles(t *testing.T) {
	v := config.Values{}
	b, _, err := config.NewBroker(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines(t, "testdata/doubles.txt") {
		i := strings.LastIndexByte(line, ' ')
		in, err := strconv.Unquote(line[:i])
		if err != nil {
			t.Fatal(err)
		}
		want := line[i+1:]
		got := "error"
		if k, _ := config.BrokerKey("log.cleaner.io.max.bytes.per.second"); k.Validate(in) == nil {
			all := b.DescribeBroker(config.Values{k.Name: in}, nil)
			j := slices.IndexFunc(all, func(d config.Described) bool { return d.Name == k.Name })
			got = all[j].Value
		}
		if got != want {
			t.Errorf("%q: got %s, Java says %s", in, got, want)
		}
	}
}

// testdata/tricky.txt is what java.util.Properties reads from
// tricky.properties; we trim values besides.
func TestPropertiesAsJavaReadsThem(t *testing.T) {
	got := readProperties(t, "testdata/tricky.properties")
	want := config.Values{}
	for _, line := range lines(t, "testdata/tricky.txt") {
		k, v, _ := strings.Cut(line, " = ")
		key, err1 := strconv.Unquote(k)
		value, err2 := strconv.Unquote(strings.ReplaceAll(v, "\f", `\f`))
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %v %v", line, err1, err2)
		}
		want[key] = strings.TrimSpace(value)
	}
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%q: got %q %v, Java reads %q", k, g, ok, v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%q = %q: Java has no such key", k, v)
		}
	}
}
