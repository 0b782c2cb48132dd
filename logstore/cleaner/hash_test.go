package cleaner

import (
	"encoding/hex"
	"math/rand"
	"testing"
	"time"
)

// TestSipHash compares with the reference implementation's vectors: the key is
// 00..0f, the input the first bytes of 00, 01, 02...
func TestSipHash(t *testing.T) {
	var k Key
	for i := range k {
		k[i] = byte(i)
	}
	h := newHasher(k)
	for n, want := range map[int]string{
		0:  "a3817f04ba25a8e66df67214c7550293",
		1:  "da87c1d86b99af44347659119b22fc45",
		2:  "8177228da4a45dc7fca38bdef60affe4",
		15: "5493e99933b0a8117e08ec0f97cfc3d9",
	} {
		in := make([]byte, n)
		for i := range in {
			in[i] = byte(i)
		}
		sum := h.sum(in)
		var out [16]byte
		for i := range 8 {
			out[i], out[8+i] = byte(sum.a>>(8*i)), byte(sum.b>>(8*i))
		}
		if got := hex.EncodeToString(out[:]); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

// TestOffsetMap compares with a map of Go's, up to the limit and beyond.
func TestOffsetMap(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for range 200 {
		m, want := NewOffsetMap(Key{byte(rng.Int())}), map[int]int64{}
		keys, room := 1+rng.Intn(300), int64(rng.Intn(300))
		load := 0.1 + 0.9*rng.Float64()
		m.Reset(room, 24*int64(rng.Intn(300)), load)
		limit := m.limit
		for off := range int64(600) {
			k := rng.Intn(keys)
			_, known := want[k]
			h := m.Hash([]byte{byte(k), byte(k >> 8)})
			ok := m.Put(h, off)
			if ok != (known || len(want) < limit) {
				t.Fatalf("key %d at %d: put %v, known %v, %d of %d", k, off, ok, known, len(want), limit)
			}
			if ok {
				want[k] = off
				if m.Latest() != off {
					t.Fatalf("latest %d, want %d", m.Latest(), off)
				}
			}
		}
		for k := range keys {
			off, known := want[k]
			if !known {
				off = -1
			}
			if got := m.Get(m.Hash([]byte{byte(k), byte(k >> 8)})); got != off {
				t.Fatalf("key %d: %d, want %d", k, got, off)
			}
		}
		if m.Keys() != len(want) || limit < 1 {
			t.Fatalf("%d keys, want %d; limit %d", m.Keys(), len(want), limit)
		}
	}
}

// TestOffsetMapBound: memory is what was allowed, however many keys are expected.
func TestOffsetMapBound(t *testing.T) {
	m := NewOffsetMap(Key{})
	m.Reset(1<<40, 24_000, 0.9)
	if len(m.slots) != 1000 || m.limit != 900 {
		t.Errorf("%d slots, limit %d", len(m.slots), m.limit)
	}
	m.Reset(90, 24_000, 0.9)
	if len(m.slots) != 102 || cap(m.slots) != 1000 {
		t.Errorf("%d slots of %d for 90 keys", len(m.slots), cap(m.slots))
	}
	m.Release()
	if m.Get(m.Hash(nil)) != -1 {
		t.Error("a released map knows keys")
	}
}

func BenchmarkHash16(b *testing.B) {
	h := newHasher(Key{1})
	k := make([]byte, 16)
	b.SetBytes(16)
	for b.Loop() {
		h.sum(k)
	}
}
