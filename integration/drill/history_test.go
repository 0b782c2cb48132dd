package main

import "testing"

// A writer is waited for in each partition that it writes, unless it is excused or
// has ended.
func TestSince(t *testing.T) {
	h := newHistory(2)
	all, kcat := h.newWriter("all", -1), h.newWriter("kcat", 0)
	m := h.mark()
	ack := func(w *writer, p int, offset int64) {
		seq, _ := w.sends(p)
		w.acked(p, seq, offset)
	}
	wants := func(want string, excused ...string) {
		t.Helper()
		got := "nil"
		if err := h.since(m, excused...); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("since: %s, want %s", got, want)
		}
	}
	wants("all has had nothing acked in partition 0")
	ack(all, 0, 0)
	wants("all has had nothing acked in partition 1")
	ack(all, 1, 0)
	kcat.sends(0)
	wants("kcat has had nothing acked in partition 0")
	wants("nil", "kcat")
	h.retire(kcat)
	wants("nil")
	fresh := h.newWriter("kcat", 0)
	m = h.mark()
	ack(all, 0, 1)
	ack(all, 1, 1)
	wants("kcat has had nothing acked in partition 0")
	ack(fresh, 0, 2)
	wants("nil")
}
