package protocol

import (
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// seeded gives a random source whose seed is printed when the test fails;
// KBROKER_SEED repeats one.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KBROKER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("KBROKER_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// rounds is how often a random test repeats.
func rounds(n int) int {
	if underRace {
		return max(1, n/8)
	}
	return n
}

// filler fills kmsg values at random.
type filler struct {
	r       *rand.Rand
	tags    bool // unknown tagged fields too
	pointer int  // one pointer or slice in so many is nil; 0: none
}

func (f filler) message(m any) { f.value(reflect.ValueOf(m).Elem(), 0) }

func (f filler) some() bool { return f.pointer == 0 || f.r.IntN(f.pointer) != 0 }

func (f filler) value(v reflect.Value, depth int) {
	if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
		for n := f.r.IntN(8); f.tags && n >= 5; n-- {
			tags.Set(uint32(1000+f.r.IntN(1<<20)), f.bytes())
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" || depth > 0 {
				f.value(v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		if f.some() {
			v.Set(reflect.New(v.Type().Elem()))
			f.value(v.Elem(), depth+1)
		}
	case reflect.Slice:
		f.slice(v, depth)
	case reflect.Array:
		for i := range v.Len() {
			f.value(v.Index(i), depth+1)
		}
	case reflect.String:
		v.SetString(string(f.bytes()))
	case reflect.Bool:
		v.SetBool(f.r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(f.r.Float64())
	case reflect.Uint8:
		v.SetUint(uint64(f.r.IntN(256)))
	default:
		v.SetInt(int64(f.r.Uint64()) >> f.r.IntN(64))
	}
}

func (f filler) slice(v reflect.Value, depth int) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if f.some() {
			v.SetBytes(f.bytes())
		}
		return
	}
	if !f.some() {
		return
	}
	n := f.r.IntN(4)
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		f.value(v.Index(i), depth+1)
	}
}

func (f filler) bytes() []byte {
	n := f.r.IntN(6)
	if f.r.IntN(10) == 0 {
		n = f.r.IntN(300)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + f.r.IntN(26))
	}
	return b
}

// eachVersion runs f for every version of every API.
func eachVersion(t *testing.T, f func(t *testing.T, api API, version int16)) {
	for _, api := range APIs() {
		for v := api.Min; v <= api.Max; v++ {
			t.Run(api.Name+"_v"+strconv.Itoa(int(v)), func(t *testing.T) { f(t, api, v) })
		}
	}
}

func newRequest(key, version int16) kmsg.Request {
	r := kmsg.RequestForKey(key)
	r.SetVersion(version)
	return r
}

func newResponse(key, version int16) kmsg.Response {
	r := kmsg.ResponseForKey(key)
	r.SetVersion(version)
	return r
}
