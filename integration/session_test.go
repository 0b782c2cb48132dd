//go:build integration

package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchSession drives one incremental fetch session (KIP-227) in Fetch 17.
type fetchSession struct {
	w         *wire
	id, epoch int32
}

func (s *fetchSession) request(from ...fetchFrom) *kmsg.FetchRequest {
	req := fetchRequest(fetchOptions{version: v(17)}, from...)
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	return req
}

// ask sends the request as the session's next one.
func (s *fetchSession) ask(t testing.TB, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	t.Helper()
	resp := ask[*kmsg.FetchResponse](t, s.w, req)
	if resp.ErrorCode == errNone {
		s.id, s.epoch = resp.SessionID, s.epoch+1
	}
	return resp
}

// answered lists the partitions of an answer as "partition: bytes".
func answered(resp *kmsg.FetchResponse) []string {
	var out []string
	for _, tp := range resp.Topics {
		for _, p := range tp.Partitions {
			state := fmt.Sprintf("%d bytes", len(p.RecordBatches))
			if p.ErrorCode != errNone {
				state = fmt.Sprintf("error %d", p.ErrorCode)
			}
			out = append(out, fmt.Sprintf("%x-%d: %s", tp.TopicID[:2], p.Partition, state))
		}
	}
	slices.Sort(out)
	return out
}

func wantAnswered(t testing.TB, what string, resp *kmsg.FetchResponse, want ...string) {
	t.Helper()
	wantCode(t, what, resp.ErrorCode, errNone)
	wantStrings(t, what, answered(resp), want)
}

// A session's whole life: full, idle, data, forgotten, added again, closed.
func TestFetchSession(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	id := createTopic(t, b, topic, 3)
	raw := batch{recs: values(1, "a")}.bytes()
	line := func(p int32, state string) string { return fmt.Sprintf("%x-%d: %s", id[:2], p, state) }
	data := fmt.Sprintf("%d bytes", len(raw))
	at := func(p int32, offset int64) fetchFrom { return fetchFrom{id: id, partition: p, offset: offset} }

	s := &fetchSession{w: w}
	resp := s.ask(t, s.request(at(0, 0), at(1, 0), at(2, 0)))
	wantAnswered(t, "full", resp, line(0, "0 bytes"), line(1, "0 bytes"), line(2, "0 bytes"))
	if s.id == 0 {
		t.Fatal("no session was made")
	}
	wantAnswered(t, "idle", s.ask(t, s.request()))
	produce(t, w, topic, 1, raw)
	wantAnswered(t, "data in one", s.ask(t, s.request()), line(1, data))
	wantAnswered(t, "data again, as the offset did not move", s.ask(t, s.request()), line(1, data))
	wantAnswered(t, "moved on", s.ask(t, s.request(at(1, 1))))

	produce(t, w, topic, 2, raw)
	req := s.request()
	req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: id, Partitions: []int32{2}}}
	wantAnswered(t, "forgotten", s.ask(t, req))
	wantAnswered(t, "still forgotten", s.ask(t, s.request()))
	wantAnswered(t, "added again", s.ask(t, s.request(at(2, 0))), line(2, data))

	stale := s.request()
	stale.SessionEpoch = 1
	wantCode(t, "epoch of long ago", ask[*kmsg.FetchResponse](t, w, stale).ErrorCode, errInvalidFetchSessionEpoch)
	foreign := s.request()
	foreign.SessionID++
	wantCode(t, "id of nobody", ask[*kmsg.FetchResponse](t, w, foreign).ErrorCode, errFetchSessionIDNotFound)

	final := s.request(at(0, 0))
	final.SessionEpoch = -1
	resp = ask[*kmsg.FetchResponse](t, w, final)
	wantAnswered(t, "closed", resp, line(0, "0 bytes"))
	if resp.SessionID != 0 {
		t.Errorf("closed session answered with id %d", resp.SessionID)
	}
	wantCode(t, "after the close", ask[*kmsg.FetchResponse](t, w, s.request()).ErrorCode, errFetchSessionIDNotFound)
}

// Errors of a partition stay in the session's answers until they end.
func TestFetchSessionErrors(t *testing.T) {
	b := shared(t)
	w, topic := dial(t, b), topicName(t)
	id := createTopic(t, b, topic, 1)
	line := func(p int32, state string) string { return fmt.Sprintf("%x-%d: %s", id[:2], p, state) }
	s := &fetchSession{w: w}
	s.ask(t, s.request(fetchFrom{id: id}, fetchFrom{id: id, partition: 4}))
	wantAnswered(t, "unknown partition", s.ask(t, s.request()), line(4, "error 3"))
	wantAnswered(t, "out of range too", s.ask(t, s.request(fetchFrom{id: id, offset: 9})), line(0, "error 1"), line(4, "error 3"))
}

// A topic that is deleted and created again under a session: the old id is
// unknown from then on, the new topic is never served under it, and the session
// goes on.
func TestFetchSessionTopicRecreated(t *testing.T) {
	b := shared(t)
	w, topic, other := dial(t, b), topicName(t), topicName(t)
	id, otherID := createTopic(t, b, topic, 1), createTopic(t, b, other, 1)
	raw := batch{recs: values(1, "a")}.bytes()
	produce(t, w, topic, 0, raw)
	s := &fetchSession{w: w}
	s.ask(t, s.request(fetchFrom{id: id}, fetchFrom{id: otherID}))
	deleteTopic(t, w, topic)
	newID := createTopic(t, b, topic, 1)
	if newID == id {
		t.Fatal("the new topic has the old id")
	}
	produce(t, w, topic, 0, raw)
	produce(t, w, other, 0, raw)
	data := fmt.Sprintf("%d bytes", len(raw))
	resp := s.ask(t, s.request())
	wantCode(t, "session", resp.ErrorCode, errNone)
	for _, tp := range resp.Topics {
		p := tp.Partitions[0]
		switch tp.TopicID {
		case otherID:
			wantStrings(t, "other topic", []string{fmt.Sprintf("%d bytes", len(p.RecordBatches))}, []string{data})
		case id:
			if p.ErrorCode != errUnknownTopicID && p.ErrorCode != errInconsistentTopicID || len(p.RecordBatches) != 0 {
				t.Errorf("old id: error %d with %d bytes", p.ErrorCode, len(p.RecordBatches))
			}
		default:
			t.Errorf("answer names topic id %x", tp.TopicID)
		}
	}
	if len(resp.Topics) != 2 {
		t.Errorf("%d topics answered, want both", len(resp.Topics))
	}
	fresh := fetch(t, w, fetchOptions{version: v(17)}, fetchFrom{id: newID})
	wantStrings(t, "new id", plain(records(t, splitBatches(t, fresh.RecordBatches))), []string{"a"})
}
