package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/coordinator"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestRecordsAreKafkas compares what is written with an encoder that is not ours.
func TestRecordsAreKafkas(t *testing.T) {
	key := kmsg.NewOffsetCommitKey()
	key.Version, key.Group, key.Topic, key.Partition = 1, "grüppe", "t", 7
	for _, c := range []commit{
		{offset: 1 << 40, epoch: 5, metadata: "näh", committed: 99, expires: never},
		{offset: 3, epoch: -1, committed: 99, expires: 1234},
	} {
		rec := offsetRecord("grüppe", "t", 7, c)
		if want := key.AppendTo(nil); !bytes.Equal(rec.Key, want) {
			t.Fatalf("key %x, want %x", rec.Key, want)
		}
		v := kmsg.NewOffsetCommitValue()
		v.Version, v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp = 3, c.offset, c.epoch, c.metadata, c.committed
		if c.expires != never {
			v.Version, v.ExpireTimestamp = 1, c.expires
		}
		if want := v.AppendTo(nil); !bytes.Equal(rec.Value, want) {
			t.Fatalf("value %x, want %x", rec.Value, want)
		}
	}
	gk := kmsg.NewGroupMetadataKey()
	gk.Version, gk.Group = 2, "g"
	if got, want := appendMetaKey(nil, "g"), gk.AppendTo(nil); !bytes.Equal(got, want) {
		t.Fatalf("key %x, want %x", got, want)
	}
	m, v := someMeta()
	v.Version = 3
	if got, want := m.append(nil), v.AppendTo(nil); !bytes.Equal(got, want) {
		t.Fatalf("value\n%x, want\n%x", got, want)
	}
}

func someMeta() (meta, kmsg.GroupMetadataValue) {
	protocol, leader, instance := "range", "a", "i"
	m := meta{protocolType: "consumer", generation: 4, protocol: &protocol, leader: &leader, since: 17, members: []metaMember{
		{id: "a", clientID: "c", clientHost: "/h", instance: &instance, rebalanceMs: 2, sessionMs: 1, subscription: []byte("s"), assignment: []byte("x")},
		{id: "b", clientID: "d", clientHost: "/h", rebalanceMs: 4, sessionMs: 3, subscription: []byte{}, assignment: []byte{}},
	}}
	v := kmsg.NewGroupMetadataValue()
	v.ProtocolType, v.Generation, v.Protocol, v.Leader, v.CurrentStateTimestamp = m.protocolType, m.generation, m.protocol, m.leader, m.since
	for _, x := range m.members {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: x.id, InstanceID: x.instance, ClientID: x.clientID, ClientHost: x.clientHost,
			RebalanceTimeoutMillis: x.rebalanceMs, SessionTimeoutMillis: x.sessionMs, Subscription: x.subscription, Assignment: x.assignment,
		})
	}
	return m, v
}

// TestAllVersionsAreRead: what older and newer brokers have written.
func TestAllVersionsAreRead(t *testing.T) {
	for version := int16(0); version <= maxOffsetValue; version++ {
		v := kmsg.NewOffsetCommitValue()
		v.Version, v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp, v.ExpireTimestamp = version, 5, 6, "m", 7, 8
		if version == 4 {
			v.UnknownTags.Set(3, []byte("later"))
		}
		want := commit{offset: 5, epoch: -1, committed: 7, expires: never}
		if version >= 3 {
			want.epoch = 6
		}
		if version == 1 {
			want.expires = 8
		}
		c, metadata, err := readCommit(v.AppendTo(nil))
		if err != nil || c != want || string(metadata) != "m" {
			t.Errorf("version %d: %v %q %v, want %v", version, c, metadata, err, want)
		}
	}
	for version := int16(0); version <= maxMetaValue; version++ {
		want, v := someMeta()
		v.Version = version
		if version < 2 {
			want.since = -1
		}
		for i := range want.members {
			if version < 3 {
				want.members[i].instance = nil
			}
			if version < 1 {
				want.members[i].rebalanceMs = want.members[i].sessionMs
			}
		}
		m, err := readMeta(v.AppendTo(nil))
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if got, want := m.append(nil), want.append(nil); !bytes.Equal(got, want) {
			t.Errorf("version %d: %x, want %x", version, got, want)
		}
	}
}

// TestBrokenRecords: every cut of a record is an error, and changes nothing.
func TestBrokenRecords(t *testing.T) {
	m, _ := someMeta()
	offset := offsetRecord("g", "t", 7, commit{metadata: "m", expires: never})
	group := coordinator.Record{Key: appendMetaKey(nil, "g"), Value: m.append(nil)}
	s := New(testConfig(), 1)
	refused := func(r coordinator.Record, want error) {
		t.Helper()
		err := s.Apply(coordinator.Entry{Record: r, Producer: cluster.NoProducerID})
		if !errors.Is(err, want) || s.Dump() != "" || len(s.groups) != 0 {
			t.Fatalf("%x %x: %v, and then\n%s", r.Key, r.Value, err, s.Dump())
		}
	}
	for _, r := range []coordinator.Record{offset, group} {
		for n := range r.Key {
			refused(coordinator.Record{Key: r.Key[:n], Value: r.Value}, errBroken)
		}
		for n := 2; n < len(r.Value); n++ {
			refused(coordinator.Record{Key: r.Key, Value: r.Value[:n]}, errBroken)
		}
		for _, version := range []int16{-1, 5, 100} {
			v := binary.BigEndian.AppendUint16(nil, uint16(version))
			refused(coordinator.Record{Key: r.Key, Value: append(v, r.Value[2:]...)}, errUnknown)
		}
	}
	refused(coordinator.Record{Key: []byte{0x7f, 1, 0, 0}}, errUnknown)
	refused(coordinator.Record{Key: []byte{0xff, 0xff}}, errUnknown)
	huge := append(m.append(nil)[:2+10+4+7+3+8], 0x7f, 0xff, 0xff, 0xff) // members without end
	refused(coordinator.Record{Key: group.Key, Value: huge}, errBroken)
}

// FuzzApply: no record makes the shard panic or lose track, neither replayed nor
// brought to life.
func FuzzApply(f *testing.F) {
	m, v := someMeta()
	o := offsetRecord("g", "t", 7, commit{metadata: "m", expires: never})
	f.Add(o.Key, o.Value, int64(-1))
	f.Add(o.Key, []byte(nil), int64(3))
	f.Add(appendMetaKey(nil, "g"), m.append(nil), int64(-1))
	v.Version = 4
	f.Add(appendMetaKey(nil, "g"), v.AppendTo(nil), int64(-1))
	f.Add([]byte{0, 3, 0, 1, 'g'}, []byte{0, 0}, int64(-1))
	f.Fuzz(func(t *testing.T, key, value []byte, producer int64) {
		config := testConfig()
		config.MaxSize = 1
		s := New(config, 1)
		e := coordinator.Entry{Record: coordinator.Record{Key: key, Value: value}, Producer: cluster.ProducerID(producer)}
		if len(value) == 0 {
			e.Value = nil
		}
		_ = s.Apply(e)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Dump()
		s.ApplyMarker(cluster.ProducerID(producer), 0, true)
		r := &rig{t: t, config: config, s: s, start: time.UnixMilli(0), now: time.UnixMilli(0)}
		r.took(s.Loaded(r.now))
		r.until(r.now.Add(time.Hour), func(coordinator.Result) {})
	})
}
