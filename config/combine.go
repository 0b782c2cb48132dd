package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func listenerPrefix(listener string) string {
	return "listener.name." + strings.ToLower(listener) + "."
}

// checkKRaft refuses what makes a KRaft node of a broker.
func (s *settings) checkKRaft() *InvalidError {
	const remedy = "kbroker works with ZooKeeper (or its embedded store) only, not with KRaft; remove this key"
	for _, name := range []string{"process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers"} {
		if len(s.parsed[name].list) > 0 {
			return s.bad(name, remedy)
		}
	}
	if s.str("controller.listener.names") != "" {
		return s.bad("controller.listener.names", remedy)
	}
	if s.bool("zookeeper.metadata.migration.enable") {
		return s.bad("zookeeper.metadata.migration.enable", remedy)
	}
	return nil
}

func (s *settings) checkID() *InvalidError {
	id, most := s.int("broker.id"), s.int("reserved.broker.max.id")
	switch {
	case s.has("node.id") && s.int("node.id") != id:
		return s.bad("node.id", fmt.Sprintf("differs from broker.id=%d; set only one of them", id))
	case !s.bool("broker.id.generation.enable"):
		if id < 0 {
			return s.bad("broker.id", "must be 0 or more, as broker.id.generation.enable is false")
		}
	case id < -1:
		return s.bad("broker.id", "must be 0 or more, or -1 for a generated id")
	case id > most:
		return s.bad("broker.id", fmt.Sprintf("is above reserved.broker.max.id=%d, where generated ids begin; choose a smaller id, raise that key, or set broker.id.generation.enable=false", most))
	}
	return nil
}

// checkZooKeeperTimes refuses what Kafka takes and then fails to connect with:
// it waits for its first connection for no longer than the session's time-out.
func (s *settings) checkZooKeeperTimes() *InvalidError {
	for _, name := range []string{"zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms"} {
		if !s.isNull(name) && s.int(name) < 1 {
			return s.bad(name, "must be 1 or more")
		}
	}
	return nil
}

func (s *settings) logDirs() ([]string, *InvalidError) {
	name := "log.dirs"
	if s.isNull(name) {
		name = "log.dir"
	}
	dirs := splitCSV(s.str(name))
	if len(dirs) == 0 {
		return nil, s.bad(name, "there must be at least one data directory")
	}
	seen := map[string]bool{}
	for _, d := range dirs {
		clean := strings.TrimRight(d, "/")
		if seen[clean] {
			return nil, s.bad(name, fmt.Sprintf("%s is listed twice", d))
		}
		seen[clean] = true
	}
	return dirs, nil
}

func (s *settings) perIPOverrides() (map[string]int32, *InvalidError) {
	const name = "max.connections.per.ip.overrides"
	pairs, err := s.parsePairs(name)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int32, len(pairs))
	for _, p := range pairs {
		n, err := strconv.ParseInt(p[1], 10, 32)
		if err != nil {
			return nil, s.bad(name, fmt.Sprintf("%q of %s is no whole number; write HOST:COUNT,…", p[1], p[0]))
		}
		if strings.IndexFunc(p[0], notInHost) >= 0 {
			return nil, s.bad(name, fmt.Sprintf("%q is neither a host name nor an address", p[0]))
		}
		out[p[0]] = int32(n)
	}
	return out, nil
}

func notInHost(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-%._:", r))
}

// ordered pairs of keys: the first must not be above the second.
var ordered = [][2]string{
	{"replica.fetch.wait.max.ms", "replica.socket.timeout.ms"},
	{"replica.fetch.wait.max.ms", "replica.lag.time.max.ms"},
	{"log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"},
	{"group.min.session.timeout.ms", "group.max.session.timeout.ms"},
	{"group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"},
	{"group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"},
	{"group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms"},
	{"group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"group.share.min.session.timeout.ms", "group.share.session.timeout.ms"},
	{"group.share.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"},
	{"group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"offsets.commit.required.acks", "offsets.topic.replication.factor"},
}

// checkCombinations refuses values that exclude each other, as Kafka does.
func (s *settings) checkCombinations(e endpoints) *InvalidError {
	for _, p := range ordered {
		if lo, hi := s.int(p[0]), s.int(p[1]); lo > hi {
			name, other, word := p[0], p[1], "above"
			if !s.has(name) { // blame what was set
				name, other, word = p[1], p[0], "below"
			}
			return s.bad(name, fmt.Sprintf("is %s %s=%d", word, other, s.int(other)))
		}
	}
	for _, c := range []func() *InvalidError{s.checkLog, s.checkCleaner, s.checkConnections, s.checkGroups} {
		if err := c(); err != nil {
			return err
		}
	}
	for _, name := range splitCSV(s.str("early.start.listeners")) {
		if !hasListener(e.listeners, name) {
			return s.bad("early.start.listeners", name+" is not one of the listeners, which are "+listenerNames(e.listeners))
		}
	}
	return nil
}

func (s *settings) checkLog() *InvalidError {
	if s.rollMs() < 1 {
		return s.bad("log.roll.ms", "must be 1 or more")
	}
	if s.rollJitterMs() < 0 {
		return s.bad("log.roll.jitter.ms", "must be 0 or more")
	}
	if s.retentionMs() == 0 {
		name := "log.retention.hours"
		for _, n := range []string{"log.retention.minutes", "log.retention.ms"} {
			if !s.isNull(n) {
				name = n
			}
		}
		return s.bad(name, "must be 1 or more, or -1 to keep records for ever")
	}
	if n := s.flushMs(); n < 0 { // Kafka fails later, when it makes the topic defaults
		return s.bad("log.flush.interval.ms", "must be 0 or more")
	}
	return nil
}

func (s *settings) checkCleaner() *InvalidError {
	threads, buffer := s.int("log.cleaner.threads"), s.int("log.cleaner.dedupe.buffer.size")
	if threads < 1 {
		return s.bad("log.cleaner.threads", "must be 1 or more; log.cleaner.enable=false switches compaction off")
	}
	if buffer/threads <= 1<<20 {
		return s.bad("log.cleaner.dedupe.buffer.size", fmt.Sprintf("gives each of log.cleaner.threads=%d no more than 1048576 bytes; raise it", threads))
	}
	return nil
}

func (s *settings) checkConnections() *InvalidError {
	if q, most := s.int("queued.max.request.bytes"), s.int("socket.request.max.bytes"); q > 0 && q < most {
		return s.bad("queued.max.request.bytes", fmt.Sprintf("is below socket.request.max.bytes=%d, so that the largest request could never be read", most))
	}
	if s.int("max.connections.per.ip") == 0 && s.str("max.connections.per.ip.overrides") == "" {
		return s.bad("max.connections.per.ip", "may be 0 only beside max.connections.per.ip.overrides, or nobody could connect")
	}
	idle, delay := s.int("connections.max.idle.ms"), s.int("connection.failed.authentication.delay.ms")
	if idle >= 0 && delay >= idle {
		return s.bad("connections.max.idle.ms", fmt.Sprintf("must be above connection.failed.authentication.delay.ms=%d", delay))
	}
	return nil
}

func (s *settings) checkGroups() *InvalidError {
	const name = "group.coordinator.rebalance.protocols"
	if !slices.Contains(s.parsed[name].list, "classic") {
		return s.bad(name, "the classic protocol cannot be left out")
	}
	if n := s.int("offsets.commit.required.acks"); n < -1 {
		return s.bad("offsets.commit.required.acks", "must be -1 or more")
	}
	if n := s.int("offsets.topic.compression.codec"); n < 0 || n > 4 {
		return s.bad("offsets.topic.compression.codec", "must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")
	}
	return nil
}
