package cluster

import "slices"

// RestartedUncleanly stands in ISRHistory.Joined for a member that came back
// without the mark of a clean shutdown when the ISR was too small to do without
// what it may have lost. Later, clean restarts do not bring that back.
const RestartedUncleanly BrokerEpoch = -2

// ISRHistory is what kbroker's controller notes in a partition's state beside
// what Kafka's does. Kafka drops it at its next write; nil stands for nothing
// known. It is never changed once made.
//
// len(Joined) is that of the ISR that it stands beside. No broker is in Left
// twice, or in Left and in that ISR.
type ISRHistory struct {
	// Joined are the broker epochs under which the ISR's members joined it, in
	// their order; NoBrokerEpoch where nobody knows.
	Joined []BrokerEpoch
	// Left are the replicas that have left the ISR and not come back, those that
	// left together in one group, the latest last.
	Left [][]BrokerID
	// Moving: the partition was being reassigned when its leader epoch began, so
	// that another assignment than what it has become may have gone with it.
	Moving bool
}

// Equal compares all of it.
func (h *ISRHistory) Equal(o *ISRHistory) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.Moving == o.Moving && slices.Equal(h.Joined, o.Joined) && slices.EqualFunc(h.Left, o.Left, slices.Equal)
}
