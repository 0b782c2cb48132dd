package config

import (
	"maps"
	"slices"
)

// settings is one consistent reading of raw values: every broker key parsed,
// defaults filled in.
type settings struct {
	raw    Values           // what was set; broker.id and node.id stand for each other
	parsed map[string]value // every broker key of the table
}

// readSettings parses raw over the defaults. It reports the first bad value by
// name; values that exclude each other are checked elsewhere.
func readSettings(raw, defaults Values) (*settings, *InvalidError) {
	s := &settings{raw: withAliases(raw), parsed: make(map[string]value, len(brokerTable))}
	for _, name := range brokerNames {
		k := brokerTable[name]
		text, set := s.raw[name]
		if !set {
			text, set = defaults[name]
		}
		if !set {
			s.parsed[name] = k.def
			continue
		}
		v, err := k.parse(text)
		if err != nil {
			return nil, err
		}
		s.parsed[name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(s.raw)) {
		if brokerTable[name] != nil {
			continue
		}
		if k := keyOf(name); k != nil { // a listener's key
			if _, err := k.parse(s.raw[name]); err != nil {
				err.Key = name
				err.text = "Invalid value " + err.Value + " for configuration " + name + ": " + err.Problem
				return nil, err
			}
		}
	}
	return s, nil
}

// withAliases copies raw and lets broker.id and node.id stand for each other.
func withAliases(raw Values) Values {
	out := make(Values, len(raw)+1)
	maps.Copy(out, raw)
	id, hasID := raw["broker.id"]
	node, hasNode := raw["node.id"]
	switch {
	case hasID && !hasNode:
		out["node.id"] = id
	case hasNode && !hasID:
		out["broker.id"] = node
	}
	return out
}

// overlay puts dynamic values over others. A dynamic key drives out its
// synonyms too, so that log.retention.ms set dynamically counts whatever
// server.properties says of hours.
func overlay(under, over Values) Values {
	out := maps.Clone(under)
	if out == nil {
		out = Values{}
	}
	for k, v := range over {
		for _, s := range chainOf(k) {
			delete(out, s)
		}
		delete(out, k)
		out[k] = v
	}
	return out
}

func chainOf(name string) []string { return chains[name] }

func (s *settings) int(name string) int64   { return s.parsed[name].n }
func (s *settings) bool(name string) bool   { return s.parsed[name].b }
func (s *settings) str(name string) string  { return s.parsed[name].s }
func (s *settings) isNull(name string) bool { return s.parsed[name].null }

// has reports whether a key was set at all.
func (s *settings) has(name string) bool { _, ok := s.raw[name]; return ok }

// shown is a value as an error shows it: as it was set, or the default.
func (s *settings) shown(name string) string {
	if raw, ok := s.raw[name]; ok {
		return raw
	}
	if v := s.parsed[name]; !v.null {
		return v.text(brokerTable[name].Type)
	}
	return ""
}

// bad blames a key for a combination that cannot be.
func (s *settings) bad(name, problem string) *InvalidError {
	return invalidf(name, s.shown(name), problem)
}

// Milliseconds of the settings that Kafka spells in several units.

func (s *settings) rollMs() int64 {
	return s.firstOf("log.roll.ms", "", "log.roll.hours")
}

func (s *settings) rollJitterMs() int64 {
	return s.firstOf("log.roll.jitter.ms", "", "log.roll.jitter.hours")
}

func (s *settings) retentionMs() int64 {
	if ms := s.firstOf("log.retention.ms", "log.retention.minutes", "log.retention.hours"); ms >= 0 {
		return ms
	}
	return Unlimited
}

func (s *settings) flushMs() int64 {
	if v := s.parsed["log.flush.interval.ms"]; !v.null {
		return v.n
	}
	return s.int("log.flush.scheduler.interval.ms")
}

func (s *settings) firstOf(ms, minutes, hours string) int64 {
	if v := s.parsed[ms]; !v.null {
		return v.n
	}
	if v, ok := s.parsed[minutes]; ok && !v.null {
		return v.n * 60_000
	}
	return s.int(hours) * 3_600_000
}

func (s *settings) timestampMaxMs(name string) int64 {
	const unset = 1<<63 - 1
	if n := s.int(name); n != unset {
		return n
	}
	return s.int("log.message.timestamp.difference.max.ms")
}
