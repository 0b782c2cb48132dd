package protocol

import (
	"context"
	"errors"
	"slices"
	"strconv"
)

// Code is one of Kafka's error codes. Every code but None is an error value of
// its own, so that it can be returned, wrapped and found with errors.Is.
type Code int16

// Error is the code's name in Kafka's spelling.
func (c Code) Error() string {
	if n, ok := names[c]; ok {
		return n
	}
	return "ERROR_" + strconv.Itoa(int(c))
}

// KafkaCode makes Code the plainest of Coded.
func (c Code) KafkaCode() int16 { return int16(c) }

// Coded is what an error of another package implements to choose its own code.
type Coded interface{ KafkaCode() int16 }

// Error is the sentinel of a code; nil for 0.
func Error(code int16) error {
	if code == 0 {
		return nil
	}
	return Code(code)
}

// CodeOf finds the code that err carries, however deeply wrapped. An error
// that carries none is UNKNOWN_SERVER_ERROR.
func CodeOf(err error) int16 {
	if err == nil {
		return int16(None)
	}
	var coded Coded
	if errors.As(err, &coded) {
		return coded.KafkaCode()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return int16(ErrRequestTimedOut)
	}
	return int16(ErrUnknownServerError)
}

// Known reports whether Kafka 3.9 defines the code.
func (c Code) Known() bool {
	_, ok := names[c]
	return ok
}

// Codes lists every code that Kafka 3.9 defines, in rising order.
func Codes() []Code {
	out := make([]Code, 0, len(names))
	for c := range names {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// Mapping gives codes to sentinels of packages that know nothing of the
// protocol. The first entry that errors.Is matches wins; what matches none is
// left to CodeOf.
type Mapping []struct {
	Err  error
	Code Code
}

// CodeOf is CodeOf with the mapping in front of it.
func (m Mapping) CodeOf(err error) int16 {
	if err == nil {
		return int16(None)
	}
	for _, e := range m {
		if errors.Is(err, e.Err) {
			return int16(e.Code)
		}
	}
	return CodeOf(err)
}
