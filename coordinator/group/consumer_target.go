package group

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kbroker/kbroker/coordinator/assign"
)

// resolve looks at the regular expressions: a member's new one at once, all of
// them when the topics may have changed.
func (p *plan) resolve(old, next string, may func(string) bool) (changed bool, err *refusal) {
	s := p.s
	if old == "" && next == "" && len(p.c.readers) == 0 {
		return false, nil
	}
	readers := maps.Clone(p.c.readers)
	if old != next {
		// One that the group does not know yet changes nothing until it matches.
		changed = old != "" || p.regexes[next] != nil
		if old != "" {
			add(readers, old, -1)
		}
		if next != "" {
			add(readers, next, 1)
		}
		if len(next) > math.MaxInt16 {
			return false, refuse(errInvalidRegularExpression, "the regular expression is too long")
		}
		if old != "" && readers[old] == 0 && p.c.regexes[old] != nil {
			p.dropRegex(old)
		}
	}
	age := s.clock - p.seen.regexAt
	due := p.seen.regexVersion == 0 || p.seen.regexVersion != s.topicsVersion && age >= regexRest || age >= regexLimit
	if due {
		p.seen.regexVersion, p.seen.regexAt = s.topicsVersion, s.clock
	}
	for _, regex := range slices.Sorted(maps.Keys(readers)) {
		was := p.regexes[regex]
		if was != nil && !due {
			continue
		}
		pattern, bad := compile(regex)
		if bad != nil {
			if regex == next {
				return false, refuse(errInvalidRegularExpression, fmt.Sprintf("SubscribedTopicRegex %q: %v", regex, bad))
			}
			continue // of a broker that knows more
		}
		now := &resolved{topics: s.topics.matching(pattern, may), version: s.topicsVersion, at: s.ms}
		if was != nil && slices.Equal(was.topics, now.topics) {
			continue
		}
		changed = changed || was != nil || len(now.topics) > 0
		p.keepRegex(regex, now)
	}
	return changed, nil
}

func (p *plan) dropRegex(regex string) {
	p.regexes = maps.Clone(p.regexes)
	delete(p.regexes, regex)
	p.write(consumerKey{regexKey, p.id, regex}.record(nil))
}

func (p *plan) keepRegex(regex string, x *resolved) {
	p.regexes = maps.Clone(p.regexes)
	p.regexes[regex] = x
	p.write(regexRecord(p.id, regex, x))
}

// refresh bumps the group's epoch when it is asked to, or when the topics that
// the group reads have changed.
func (p *plan) refresh(bump bool, old, next *consumer, replaced string) {
	if !bump && p.seen.checked == p.s.topicsVersion {
		return
	}
	p.seen.checked = p.s.topicsVersion
	hash := p.s.topics.hash(p.names(func(count map[string]int) {
		if p.c.members[old.id] != nil || replaced != "" {
			addAll(count, old.topics, -1)
		}
		addAll(count, next.topics, 1)
	}))
	if bump || hash != p.c.hash {
		p.bump(hash)
	}
}

func (p *plan) bump(hash uint64) {
	p.epoch++
	p.write(epochRecord(p.id, p.epoch, hash))
	if p.c.partitionsRecord {
		p.write(consumerKey{partitionsKey, p.id, ""}.record(nil))
	}
}

func addAll(count map[string]int, keys []string, n int) {
	for _, k := range keys {
		add(count, k, n)
	}
}

// names are the topics that the group will read when its members have changed.
func (p *plan) names(members func(count map[string]int)) []string {
	count := maps.Clone(p.c.topics)
	members(count)
	for regex, was := range p.c.regexes {
		if p.regexes[regex] != was {
			addAll(count, was.topics, -1)
		}
	}
	for regex, now := range p.regexes {
		if p.c.regexes[regex] != now {
			addAll(count, now.topics, 1)
		}
	}
	return slices.Sorted(maps.Keys(count))
}

// retarget makes the target of the group's epoch, writes what changed of it, and
// returns that of next.
func (p *plan) retarget(old, next *consumer, replaced string) assign.Set {
	members := make([]*consumer, 0, len(p.c.members)+1)
	for _, m := range p.c.members {
		if m.id != next.id && m.id != replaced {
			members = append(members, m)
		}
	}
	members = append(members, next)
	slices.SortFunc(members, func(a, b *consumer) int { return cmpText(a.id, b.id) })
	current := func(m *consumer) assign.Set {
		if m == next && replaced != "" {
			return p.c.target[replaced]
		}
		return p.c.target[m.id]
	}
	give, _ := assign.Named(p.assignor(old, next, replaced))
	sets := give(p.c.input(p.s.topics, members, current, p.regexes))
	var mine assign.Set
	for i, m := range members {
		if m == next {
			mine = sets[i]
		}
		if _, known := p.c.target[m.id]; !known && (m != next || replaced == "") || !sets[i].Equal(current(m)) {
			p.write(targetRecord(p.id, m.id, sets[i]))
		}
	}
	p.write(targetEpochRecord(p.id, p.epoch, p.s.ms))
	return mine
}

// assignor is the one that most members name, the configured order breaking ties.
func (p *plan) assignor(old, next *consumer, replaced string) string {
	votes := maps.Clone(p.c.votes)
	if (p.c.members[old.id] != nil || replaced != "") && old.assignor != "" {
		add(votes, old.assignor, -1)
	}
	if next.assignor != "" {
		add(votes, next.assignor, 1)
	}
	return preferred(votes, p.s.config.Consumer.Assignors)
}

func preferred(votes map[string]int, known []string) string {
	best := ""
	for _, name := range known {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}
