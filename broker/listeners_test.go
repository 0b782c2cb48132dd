package broker

import "testing"

func TestReceiveBuffer(t *testing.T) {
	for _, x := range []struct {
		configured int32
		autotuned  int
		want       int
	}{
		{-1, 6 << 20, 0}, {102400, 6 << 20, 0}, {6 << 20, 6 << 20, 0}, {8 << 20, 6 << 20, 8 << 20},
		{102400, 0, 102400}, // not known how far the system would go
	} {
		if got := receiveBuffer(x.configured, x.autotuned); got != x.want {
			t.Errorf("configured %d, the system grows to %d: set %d, want %d", x.configured, x.autotuned, got, x.want)
		}
	}
}
