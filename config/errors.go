package config

import (
	"errors"
	"strings"
)

// ErrInvalid is what every error of this package is: something that whoever
// wrote the configuration can put right.
var ErrInvalid = errors.New("invalid configuration")

type invalidKind int8

const (
	badValue       invalidKind = iota // one value does not parse or is out of range
	badCombination                    // values that exclude each other
	badTopic                          // Kafka's InvalidConfigurationException
)

// InvalidError names the key and the value that are wrong.
type InvalidError struct {
	Key, Value string // the value is hidden when it is a secret
	Problem    string // what is wrong and, where it helps, what to do
	text       string // Kafka's words, where it has some
	kind       invalidKind
}

// Error is the message that Kafka sends, or KEY=VALUE: PROBLEM.
func (e *InvalidError) Error() string {
	if e.text != "" {
		return e.text
	}
	return e.Line()
}

// Unwrap makes errors.Is(err, ErrInvalid) hold.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// Line is one line for an operator: KEY=VALUE: PROBLEM.
func (e *InvalidError) Line() string {
	if e.Key == "" {
		return e.Problem
	}
	problem := e.Problem
	if e.kind == badValue { // Kafka's words begin a sentence
		problem = strings.ToLower(problem[:1]) + problem[1:]
	}
	return e.Key + "=" + e.Value + ": " + problem
}

// ForResource is the message with which Kafka answers an alter request: a bad
// value gets the resource in front, the rest stays as it is.
func (e *InvalidError) ForResource(kind, name string) string {
	if e.kind == badValue {
		return "Invalid config value for resource ConfigResource(type=" + kind + ", name='" + name + "'): " + e.Error()
	}
	return e.Error()
}

func invalidf(key, value, problem string) *InvalidError {
	if k := keyOf(key); k != nil && k.Sensitive {
		value = hidden
	}
	return &InvalidError{Key: key, Value: value, Problem: problem, kind: badCombination}
}
