package protocol

import (
	"encoding/binary"
	"fmt"
)

// FrameSize reads a frame's size from its first four bytes. Sizes that are
// negative or above max are refused before anything is allocated for them.
func FrameSize(prefix []byte, max int32) (int, error) {
	n := int32(binary.BigEndian.Uint32(prefix))
	if n < 0 || n > max {
		return 0, fmt.Errorf("%w frame: size %d, allowed are 0 to %d", ErrMalformed, n, max)
	}
	return int(n), nil
}
