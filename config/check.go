package config

import (
	"fmt"
	"strconv"
	"strings"
)

// check is a condition on a parsed value beyond its type. ok returns the part
// of the value to blame and what is wrong with it, both empty when nothing is.
type check struct {
	valid string // the condition, for people
	ok    func(t Type, v value) (blame, problem string)
}

func number(t Type, v value) float64 {
	if t == Double {
		return v.f
	}
	return float64(v.n)
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func atLeast(min float64) *check {
	return &check{"at least " + plain(min), func(t Type, v value) (string, string) {
		if number(t, v) < min {
			return v.text(t), "Value must be at least " + plain(min)
		}
		return "", ""
	}}
}

func between(min, max float64) *check {
	return &check{plain(min) + " to " + plain(max), func(t Type, v value) (string, string) {
		switch n := number(t, v); {
		case n < min:
			return v.text(t), "Value must be at least " + plain(min)
		case n > max:
			return v.text(t), "Value must be no more than " + plain(max)
		}
		return "", ""
	}}
}

func atLeastOr(min, other float64) *check {
	return &check{fmt.Sprintf("%s, or at least %s", plain(other), plain(min)), func(t Type, v value) (string, string) {
		if n := number(t, v); n != other && n < min {
			return v.text(t), fmt.Sprintf("Value must be %s or at least %s", plain(other), plain(min))
		}
		return "", ""
	}}
}

func gzipLevel() *check {
	return &check{"-1, or 1 to 9", func(t Type, v value) (string, string) {
		if v.n != -1 && (v.n < 1 || v.n > 9) {
			return v.text(t), "Value must be between 1 and 9 or equal to -1"
		}
		return "", ""
	}}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func oneOf(values ...string) *check {
	return &check{strings.Join(values, ", "), func(_ Type, v value) (string, string) {
		if !contains(values, v.s) {
			return v.s, "String must be one of: " + strings.Join(values, ", ")
		}
		return "", ""
	}}
}

func oneOfFold(values ...string) *check {
	return &check{strings.Join(values, ", "), func(_ Type, v value) (string, string) {
		if !contains(values, strings.ToLower(v.s)) {
			return v.s, "String must be one of (case insensitive): " + strings.Join(values, ", ")
		}
		return "", ""
	}}
}

func listOf(values ...string) *check {
	return &check{"any of " + strings.Join(values, ", "), func(_ Type, v value) (string, string) {
		for _, s := range v.list {
			if !contains(values, s) {
				return s, "String must be one of: " + strings.Join(values, ", ")
			}
		}
		return "", ""
	}}
}

func nonEmpty() *check {
	return &check{"not empty", func(_ Type, v value) (string, string) {
		if v.s == "" {
			return v.s, "String must be non-empty"
		}
		return "", ""
	}}
}

func kafkaVersion() *check {
	return &check{"a version of Kafka, such as 3.9 or 3.9-IV0", func(_ Type, v value) (string, string) {
		if !isKafkaVersion(v.s) {
			return v.s, "Version " + v.s + " is not a valid version"
		}
		return "", ""
	}}
}

// kafkaReleases lists the releases that have a metadata version, with how many
// internal versions (-IV0 and so on) each has; 0 stands for a release without.
var kafkaReleases = map[string]int{
	"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 2, "0.10.1": 3, "0.10.2": 1, "0.11.0": 3,
	"1.0": 1, "1.1": 1, "2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 1, "2.6": 1, "2.7": 3, "2.8": 2,
	"3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3, "3.6": 3, "3.7": 5, "3.8": 1, "3.9": 1, "4.0": 2,
}

// isKafkaVersion accepts a release or one of its internal versions. What
// follows the release's own segments is ignored: 3.9.2 is 3.9.
func isKafkaVersion(s string) bool {
	segments := 2
	if strings.HasPrefix(s, "0.") {
		segments = 3
	}
	// Java's split drops empty segments at the end.
	parts := strings.Split(strings.TrimRight(s, "."), ".")
	if len(parts) > segments {
		s = strings.Join(parts[:segments], ".")
	}
	release, iv, has := strings.Cut(s, "-IV")
	count, ok := kafkaReleases[release]
	if !ok || !has {
		return ok && release != "4.0" // 4.0 is not out yet for a 3.9 broker
	}
	n, err := strconv.Atoi(iv)
	return err == nil && strconv.Itoa(n) == iv && n >= 0 && n < count
}

func replicaList() *check {
	return &check{"*, or PARTITION:BROKER pairs", func(_ Type, v value) (string, string) {
		if _, ok := parseThrottled(v.list); !ok {
			// The caller knows the key's name, which Kafka puts in here.
			return "[" + strings.Join(v.list, ", ") + "]",
				"%s must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
		}
		return "", ""
	}}
}
