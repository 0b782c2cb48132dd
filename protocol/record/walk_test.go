package record

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"
)

// slowTally is tally.run, written to be obvious.
func slowTally(p []byte, base int64, count int32) (t tally, pos int, problem string) {
	t = newTally(base)
	for t.n < count {
		var r Rec
		end, bad := r.one(p, pos)
		if bad != "" {
			return t, pos, bad
		}
		ts := base + r.TimestampDelta
		t.max, t.min = max(t.max, ts), min(t.min, ts)
		t.gap = t.gap || r.OffsetDelta != t.n
		t.noKey = t.noKey || r.KeyNull
		t.n++
		pos = end
	}
	return t, pos, ""
}

// randomRecords is what a producer may send, numbers of every length included,
// and now and then what it may not.
func randomRecords(rnd *rand.Rand, n int) []byte {
	var out []byte
	wild := rnd.IntN(3) == 0
	size := []int{3, 200, 5000}[rnd.IntN(3)]
	if n > 1000 {
		size = 3
	}
	for i := range n {
		r := Rec{KeyNull: rnd.IntN(2) == 0, ValueNull: rnd.IntN(8) == 0, Value: make([]byte, rnd.IntN(size))}
		if !r.KeyNull {
			r.Key = make([]byte, rnd.IntN(90))
		}
		if rnd.IntN(4) == 0 {
			r.HeaderCount, r.Headers = 2, []byte{2, 'h', 1, 0, 4, 'v', 'w'}
		}
		delta := int64(rnd.IntN(1000)) - 500
		od := int32(i)
		if wild {
			switch rnd.IntN(20) {
			case 0:
				delta = int64(rnd.Uint64())
			case 1:
				od = int32(rnd.Uint32())
			case 2:
				r.Key = make([]byte, rnd.IntN(9000))
			}
		}
		out = appendRecord(out, od, delta, &r)
		if wild && rnd.IntN(30) == 0 {
			out[len(out)-1-rnd.IntN(min(len(out), 20))] ^= 1 << rnd.IntN(8)
		}
	}
	return out
}

func TestWalkAgainstModel(t *testing.T) {
	rnd := newRand(t)
	for range 1000 {
		n := rnd.IntN(60)
		if rnd.IntN(50) == 0 {
			n = 9000 // offset deltas of three bytes
		}
		p := randomRecords(rnd, n)
		if rnd.IntN(4) == 0 && len(p) > 0 {
			p = p[:rnd.IntN(len(p))]
		}
		count := int32(n + rnd.IntN(3) - 1)
		base := []int64{0, nowMs, math.MaxInt64 - 3, math.MinInt64}[rnd.IntN(4)]
		got := newTally(base)
		pos, problem := got.run(p, count)
		want, wantPos, wantProblem := slowTally(p, base, count)
		if got != want || pos != wantPos || problem != wantProblem {
			t.Fatalf("got %+v at %d %q\nwant %+v at %d %q\n%x", got, pos, problem, want, wantPos, wantProblem, p)
		}
	}
}

// pieces yields p in random pieces.
type pieces struct {
	rnd *rand.Rand
	p   []byte
	end error
}

func (s *pieces) next(*[]byte, int64) ([]byte, error) {
	if len(s.p) == 0 {
		return nil, s.end
	}
	n := min(len(s.p), []int{0, 1, 3, 50, 5000}[s.rnd.IntN(5)])
	piece := s.p[:n:n]
	s.p = s.p[n:]
	return piece, nil
}

// TestPackedWalkAgainstModel walks and iterates the same records in pieces.
func TestPackedWalkAgainstModel(t *testing.T) {
	rnd := newRand(t)
	errBroken := errors.New("broken stream")
	for range 1000 {
		n := 1 + rnd.IntN(20)
		p := randomRecords(rnd, n)
		end := io.EOF
		if rnd.IntN(4) == 0 && len(p) > 0 {
			p = p[:rnd.IntN(len(p))]
			if rnd.IntN(2) == 0 {
				end = errBroken
			}
		}
		count := int32(n + rnd.IntN(2))
		want, pos, problem := slowTally(p, nowMs, count)
		ok := problem == "" && pos == len(p) && end == io.EOF

		d := &Decompressor{left: math.MaxInt64, source: &pieces{rnd, p, end}}
		got := newTally(nowMs)
		err := d.walk(&got, count)
		if (err == nil) != ok || err == nil && got != want {
			t.Fatalf("walk: %v, %+v; model: %q at %d of %d, %+v\n%x", err, got, problem, pos, len(p), want, p)
		}
		if err != nil && end == io.EOF && !errors.Is(err, ErrInvalidRecord) {
			t.Fatalf("walk: %v", err)
		}

		d = &Decompressor{left: math.MaxInt64, source: &pieces{rnd, p, end}}
		h := header{codec: CodecLZ4, count: count, lastOffsetDelta: count - 1, baseTimestamp: nowMs}
		it := Iter{b: h.put(make([]byte, HeaderLen)), left: count, packed: true, cur: cursor{d: d}}
		got = newTally(nowMs)
		for it.Next() {
			ts := it.Timestamp()
			got.max, got.min = max(got.max, ts), min(got.min, ts)
			got.gap = got.gap || it.Record().OffsetDelta != got.n
			got.noKey = got.noKey || it.Record().KeyNull
			got.n++
		}
		if (it.Err() == nil) != ok || ok && got != want {
			t.Fatalf("iter: %v, %+v; model: %q, %+v\n%x", it.Err(), got, problem, want, p)
		}
		if got.n != want.n && end == io.EOF {
			t.Fatalf("iter: %d records before %v, model %d before %q", got.n, it.Err(), want.n, problem)
		}
	}
}

func TestVarints(t *testing.T) {
	for shift := range 64 {
		for _, d := range []int64{-2, -1, 0, 1, 2} {
			v := int64(1)<<shift + d
			for _, v := range []int64{v, -v} {
				p := appendVarlong(nil, v)
				got, n := varlong(append(p, 0xff), 0)
				if got != v || n != len(p) || varlongLen(v) != len(p) {
					t.Fatalf("%d: %d in %d bytes of %x", v, got, n, p)
				}
				for cut := range p {
					if _, n := varlong(p[:cut], 0); n != varintShort {
						t.Fatalf("%x cut at %d: %d", p, cut, n)
					}
				}
				w := int32(v)
				p = appendVarint(nil, w)
				got32, n := varint(append(p, 0xff), 0)
				if got32 != w || n != len(p) || varintLen(w) != len(p) {
					t.Fatalf("%d: %d in %d bytes of %x", w, got32, n, p)
				}
			}
		}
	}
	if _, n := varint([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, 0); n != varintOverlong {
		t.Error("a varint of six bytes")
	}
	if v, n := varint([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, 0); n != 5 || v != math.MinInt32 {
		t.Errorf("bits beyond the 32nd: %d, %d", v, n)
	}
	eleven := make([]byte, 11)
	for i := range eleven {
		eleven[i] = 0x80
	}
	if _, n := varlong(eleven, 0); n != varintOverlong {
		t.Error("a varlong of eleven bytes")
	}
}
