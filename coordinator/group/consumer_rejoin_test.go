package group

import (
	"testing"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator/assign"
	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Who may join as a static member whose instance has a holder: the holder itself
// at any time, which keeps what it is given; anybody else only in the place of one
// that has gone for a moment or speaks the classic protocol.
func TestStaticMemberJoinsAgain(t *testing.T) {
	has := assign.Set{{Topic: cluster.TopicID{1}, Partitions: []int32{0, 1}}}
	for what, holder := range map[string]consumer{
		"first":     {epoch: 2},
		"settled":   {epoch: 5, previous: 4},
		"unrevoked": {epoch: 5, previous: 5, state: unrevoked, revoking: assign.Set{{Topic: cluster.TopicID{1}, Partitions: []int32{2}}}},
		"away":      {epoch: away, previous: 4},
		"classic":   {epoch: 5, previous: 4, classic: &classicMember{protocols: []proto{{name: "range"}}}},
	} {
		for _, id := range []string{"holder", "other"} {
			h := holder
			h.id, h.instance, h.assigned = "holder", "i", has
			p := &plan{s: New(consumerConfig(), 1), id: "g", c: newConsumers()}
			p.c.setMember(h.id, &h)
			p.c.setMember("other-instance", &consumer{id: "other-instance", instance: "j", epoch: 5})
			free := what == "away" || what == "classic"
			m := &kmsg.ConsumerGroupHeartbeatRequest{MemberID: id, MemberEpoch: joining, InstanceID: kmsg.StringPtr("i")}
			old, replaced, err := p.member(id, m, &assign.Set{})
			switch {
			case !free && id == "other":
				if err == nil || err.code != protocol.ErrUnreleasedInstanceID || len(p.records) > 0 {
					t.Errorf("%s, %s: %v, %d records", what, id, err, len(p.records))
				}
			case err != nil:
				t.Errorf("%s, %s: %v", what, id, err)
			case free && (replaced != "holder" || old.id != id || old.epoch != 0 || !old.assigned.Equal(has)):
				t.Errorf("%s, %s: in the place of %q as %+v", what, id, replaced, old)
			case !free && (replaced != "" || old != &h || len(p.records) > 0):
				t.Errorf("%s, %s: in the place of %q as %+v, %d records", what, id, replaced, old, len(p.records))
			}
			m.MemberEpoch = 5
			if _, _, err := p.member("other", m, nil); err == nil || err.code != protocol.ErrFencedInstanceID {
				t.Errorf("%s: a heartbeat of another one: %v", what, err)
			}
		}
	}
}

// What a heartbeat's epoch has to be.
func TestMemberMayBeat(t *testing.T) {
	one, two := assign.Set{{Topic: cluster.TopicID{1}, Partitions: []int32{0}}}, assign.Set{{Topic: cluster.TopicID{1}, Partitions: []int32{0, 1}}}
	m := &consumer{epoch: 5, previous: 3, assigned: one}
	for _, c := range []struct {
		epoch int32
		owned *assign.Set
		may   bool
	}{
		{5, nil, true}, {5, &two, true}, {6, nil, false}, {4, &one, false}, {2, &one, false},
		{3, nil, false}, {3, &two, false}, {3, &one, true}, {3, &assign.Set{}, true}, {joining, &assign.Set{}, true},
	} {
		if err := m.mayBeat(c.epoch, c.owned); (err == nil) != c.may {
			t.Errorf("epoch %d, owning %v: %v", c.epoch, c.owned, err)
		}
	}
}
