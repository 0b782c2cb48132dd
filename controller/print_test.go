package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

func ids(list []cluster.BrokerID) string {
	parts := make([]string, len(list))
	for i, id := range list {
		parts[i] = fmt.Sprint(int(id))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func assignmentText(a cluster.Assignment) string {
	text := ids(a.Replicas)
	if len(a.Adding) > 0 {
		text += "+" + ids(a.Adding)
	}
	if len(a.Removing) > 0 {
		text += "-" + ids(a.Removing)
	}
	return text
}

func stateText(s cluster.LeaderAndISR) string {
	text := fmt.Sprintf("leader=%d epoch=%d isr=%s", s.Leader, s.LeaderEpoch, ids(s.ISR))
	if s.Recovery != cluster.Recovered {
		text += " recovering"
	}
	return text
}

func (w Write) text() string {
	switch w.Kind {
	case CreateState:
		return fmt.Sprintf("create %s %s (%s)", w.TopicPartition(), stateText(w.State), w.Why)
	case SetState:
		return fmt.Sprintf("set %s v%d %s (%s)", w.TopicPartition(), w.State.ZKVersion, stateText(w.State), w.Why)
	case SetTopicID:
		return fmt.Sprintf("set %s v%d topic id %s (%s)", w.Topic, w.Version, w.TopicID, w.Why)
	case SetAssignment:
		text := fmt.Sprintf("set %s v%d", w.Topic, w.Version)
		for _, m := range w.Moves {
			text += fmt.Sprintf(" %d=%s", m.Partition, assignmentText(m.Assignment))
		}
		return text + fmt.Sprintf(" (%s)", w.Why)
	case DeleteTopic:
		return fmt.Sprintf("delete %s (%s)", w.Topic, w.Why)
	case ForgetDeletion:
		return fmt.Sprintf("forget the deletion of %s (%s)", w.Topic, w.Why)
	}
	return "invalid write"
}

func (s Send) text() string {
	to := fmt.Sprintf("to %d@%d ", s.Broker, s.Epoch)
	var parts []string
	switch {
	case s.LeaderAndISR != nil:
		to += "LeaderAndIsr"
		for _, t := range s.LeaderAndISR.Topics {
			for _, p := range t.Partitions {
				parts = append(parts, leadText(t, p))
			}
		}
		nodes := make([]string, 0, 2)
		for _, n := range s.LeaderAndISR.Leaders {
			nodes = append(nodes, fmt.Sprintf("%d=%s:%d", n.ID, n.Host, n.Port))
		}
		parts = append(parts, "leaders "+strings.Join(nodes, " "))
	case s.UpdateMetadata != nil:
		to += "UpdateMetadata"
		live := make([]cluster.BrokerID, 0, 4)
		for _, b := range s.UpdateMetadata.Brokers {
			live = append(live, b.ID)
		}
		to += " brokers " + ids(live)
		for _, t := range s.UpdateMetadata.Topics {
			for _, p := range t.Partitions {
				parts = append(parts, metaText(t, p))
			}
		}
	case s.StopReplica != nil:
		to += "StopReplica"
		for _, t := range s.StopReplica.Topics {
			for _, p := range t.Partitions {
				text := fmt.Sprintf("%s-%d epoch=%d", t.Name, p.Partition, p.LeaderEpoch)
				if p.Delete {
					text += " delete"
				}
				parts = append(parts, text)
			}
		}
	}
	for _, p := range parts {
		to += "\n    " + p
	}
	return to
}

func leadText(t LeaderAndISRTopic, p LeaderAndISRPartition) string {
	text := fmt.Sprintf("%s-%d %s v%d c%d replicas=%s", t.Name, p.Partition, stateText(p.State), p.State.ZKVersion, p.State.ControllerEpoch, assignmentText(p.Assignment))
	if p.IsNew {
		text += " new"
	}
	return text
}

func metaText(t UpdateMetadataTopic, p UpdateMetadataPartition) string {
	text := fmt.Sprintf("%s-%d %s v%d c%d replicas=%s", t.Name, p.Partition, stateText(p.State), p.State.ZKVersion, p.State.ControllerEpoch, ids(p.Replicas))
	if len(p.Offline) > 0 {
		text += " offline=" + ids(p.Offline)
	}
	return text
}

// text is the whole plan, byte for byte.
func (p Plan) text() string {
	var lines []string
	for _, w := range p.Writes {
		lines = append(lines, "write "+w.text())
	}
	for _, a := range p.Asks {
		lines = append(lines, "ask unclean election of "+a)
	}
	for _, s := range p.Sends {
		lines = append(lines, "send "+s.text())
	}
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "\n") + "\n"
}

// text is the image as far as a story needs to see it.
func (im *Image) text() string {
	var b strings.Builder
	for _, id := range im.BrokerIDs() {
		fmt.Fprintf(&b, "broker %d@%d", id, im.brokers[id].Epoch)
		if im.brokers[id].leaving {
			b.WriteString(" leaving")
		}
		b.WriteString("\n")
	}
	for _, id := range sortedKeys(im.arriving) {
		fmt.Fprintf(&b, "broker %d@%d arriving\n", id, im.arriving[id].Epoch)
	}
	names := im.Topics()
	slices.Sort(names)
	for _, name := range names {
		for _, p := range im.topics[name].parts {
			if !p.known {
				fmt.Fprintf(&b, "%s no state, replicas=%s\n", p.tp(), ids(p.assignment.Replicas))
				continue
			}
			fmt.Fprintf(&b, "%s %s v%d", p.tp(), stateText(p.state), p.state.ZKVersion)
			if reassigning(p.assignment) {
				fmt.Fprintf(&b, " replicas=%s", assignmentText(p.assignment))
			}
			if h := p.state.History; h != nil {
				fmt.Fprintf(&b, " joined=%v", h.Joined)
				if len(h.Left) > 0 {
					fmt.Fprintf(&b, " left=%v", h.Left)
				}
				if h.Moving {
					b.WriteString(" moving")
				}
			}
			for _, r := range p.leavers {
				fmt.Fprintf(&b, " leaver=%d", r.id)
			}
			b.WriteString("\n")
		}
	}
	c := im.Counts()
	fmt.Fprintf(&b, "%d brokers, %d topics, %d partitions, %d offline, %d not led by the preferred replica, %d topics to delete\n",
		c.Brokers, c.Topics, c.Partitions, c.OfflinePartitions, c.PreferredImbalance, c.TopicsToDelete)
	return b.String()
}
