package zkmeta

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
)

// EncodeState writes the data of a partition's state znode. The znode's version
// is not part of it.
func EncodeState(s cluster.LeaderAndISR) []byte {
	return encodeObject(func(b *builder) {
		b.integer("controller_epoch", int64(s.ControllerEpoch))
		b.integer("leader", int64(s.Leader))
		b.integer("version", 1)
		b.integer("leader_epoch", int64(s.LeaderEpoch))
		b.brokers("isr", s.ISR)
		if s.Recovery != cluster.Recovered {
			b.integer("leader_recovery_state", int64(s.Recovery))
		}
		if s.History != nil {
			b.object(historyKey, func() { encodeHistory(b, s.History) })
		}
	})
}

// historyKey is kbroker's own; Kafka 3.9 passes over it, and drops it when it
// writes the state.
const historyKey = "kbroker"

func encodeHistory(b *builder, h *cluster.ISRHistory) {
	b.integer("version", 1)
	b.list("joined", func() {
		for _, e := range h.Joined {
			b.sep()
			b.buf = strconv.AppendInt(b.buf, int64(e), 10)
		}
	})
	if len(h.Left) > 0 {
		b.list("left", func() {
			for _, group := range h.Left {
				b.sep()
				b.open('[')
				for _, id := range group {
					b.sep()
					b.buf = strconv.AppendInt(b.buf, int64(id), 10)
				}
				b.close(']')
			}
		})
	}
	if h.Moving {
		b.raw("moving", json.RawMessage("true"))
	}
}

// history reads it. One of a later version is refused: what it means to the
// partition's data cannot be known.
func (o object) history(isr []cluster.BrokerID) *cluster.ISRHistory {
	in, ok := o.object(historyKey)
	if !ok {
		return nil
	}
	in.version(1, 1, false)
	h := &cluster.ISRHistory{}
	for _, v := range in.list("joined") {
		e, err := parseInt(v, int64(cluster.RestartedUncleanly), math.MaxInt64)
		if err != nil {
			in.fail("%q: broker epoch %w", "joined", err)
			return nil
		}
		h.Joined = append(h.Joined, cluster.BrokerEpoch(e))
	}
	if *o.err == nil && len(h.Joined) != len(isr) {
		in.fail("%q has %d broker epochs for an ISR of %d", "joined", len(h.Joined), len(isr))
		return nil
	}
	switch moving, _ := in.raw("moving"); string(moving) {
	case "true":
		h.Moving = true
	case "", "false":
	default:
		in.fail("%q is neither true nor false", "moving")
		return nil
	}
	if left, ok := in.raw("left"); ok {
		seen := slices.Clone(isr)
		for _, v := range in.asList("left", left) {
			group := in.asBrokers("left", v)
			for _, id := range group {
				if slices.Contains(seen, id) {
					in.fail("%q: broker %d is in the ISR or there twice", "left", id)
					return nil
				}
				seen = append(seen, id)
			}
			if len(group) > 0 {
				h.Left = append(h.Left, group)
			}
		}
	}
	return h
}

// DecodeState reads a partition's state and gives it the znode's version.
// Unknown fields are dropped, as Kafka drops them, but for kbroker's own.
func DecodeState(tp cluster.TopicPartition, data []byte, version cluster.ZKVersion) (cluster.LeaderAndISR, error) {
	if s, ok := scanState(data); ok {
		s.ZKVersion = version
		return s, nil
	}
	return decodeState(tp, data, version)
}

// decodeState reads a state however it is written.
func decodeState(tp cluster.TopicPartition, data []byte, version cluster.ZKVersion) (cluster.LeaderAndISR, error) {
	s := cluster.LeaderAndISR{ZKVersion: version}
	err := decodeObject(StatePath(tp), data, func(o object) {
		o.version(1, 1, true)
		s.Leader = cluster.BrokerID(o.integer("leader", int64(cluster.LeaderDuringDelete), math.MaxInt32))
		s.LeaderEpoch = cluster.LeaderEpoch(o.integer("leader_epoch", 0, math.MaxInt32))
		s.ControllerEpoch = cluster.ControllerEpoch(o.integer("controller_epoch", -1, math.MaxInt32))
		s.ISR = o.brokers("isr")
		s.Recovery = cluster.RecoveryState(o.integerOr("leader_recovery_state", int64(cluster.Recovered), int64(cluster.Recovering), int64(cluster.Recovered)))
		s.History = o.history(s.ISR)
	})
	return s, err
}
