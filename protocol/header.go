package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is what input that breaks the protocol's grammar gives. Kafka
// closes the connection on it, and so does protocol/server.
var ErrMalformed = errors.New("malformed")

// ErrUnsupported is a (key, version) that Kafka 3.9 does not speak.
var ErrUnsupported = errors.New("unsupported API or version")

// Header is a request's header.
type Header struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string // "" for null too, as Kafka takes it
}

// UnknownAPIVersions reports an ApiVersions request of a version that is not
// spoken: its body is not read, and its answer has the shape of v0 (KIP-511).
func (h Header) UnknownAPIVersions() bool {
	return h.Key == ApiVersions && !Supported(h.Key, h.Version)
}

// BodyVersion is the version in whose shape the answer is written.
func (h Header) BodyVersion() int16 {
	if h.UnknownAPIVersions() {
		return 0
	}
	return h.Version
}

// ParseHeader splits a frame (without its size) into header and body. The body
// aliases the frame.
func ParseHeader(frame []byte) (h Header, body []byte, err error) {
	return ParseHeaderAfter("", frame)
}

// ParseHeaderAfter is ParseHeader for a connection whose previous request came
// from clientID: an equal id costs no allocation.
func ParseHeaderAfter(clientID string, frame []byte) (h Header, body []byte, err error) {
	if len(frame) < 8 {
		return h, nil, fmt.Errorf("%w request header: %d bytes", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	api := lookup(h.Key)
	if api == nil {
		return h, nil, fmt.Errorf("%w: key %d", ErrUnsupported, h.Key)
	}
	body = frame[8:]
	if h.Key == ControlledShutdown && h.Version == 0 {
		return h, body, nil // the one request without a client id
	}
	if len(body) < 2 {
		return h, nil, fmt.Errorf("%w request header: no client id", ErrMalformed)
	}
	n := int(int16(binary.BigEndian.Uint16(body)))
	body = body[2:]
	if n > len(body) {
		return h, nil, fmt.Errorf("%w request header: client id of %d bytes, %d left", ErrMalformed, n, len(body))
	}
	if n > 0 {
		if string(body[:n]) == clientID {
			h.ClientID = clientID
		} else {
			h.ClientID = string(body[:n])
		}
		body = body[n:]
	}
	if !api.Flexible(h.Version) {
		return h, body, nil
	}
	if body, err = skipTags(body); err != nil {
		return h, nil, fmt.Errorf("request header: %w", err)
	}
	return h, body, nil
}

// skipTags steps over a section of tagged fields.
func skipTags(b []byte) ([]byte, error) {
	count, n := uvarint(b)
	if n == 0 {
		return nil, fmt.Errorf("%w tagged fields", ErrMalformed)
	}
	b = b[n:]
	if count > uint32(len(b))/2 {
		return nil, fmt.Errorf("%w tagged fields: %d in %d bytes", ErrMalformed, count, len(b))
	}
	for ; count > 0; count-- {
		_, n := uvarint(b)
		if n == 0 {
			return nil, fmt.Errorf("%w tagged fields", ErrMalformed)
		}
		size, m := uvarint(b[n:])
		if m == 0 || uint64(size) > uint64(len(b)-n-m) {
			return nil, fmt.Errorf("%w tagged fields", ErrMalformed)
		}
		b = b[n+m+int(size):]
	}
	return b, nil
}

// uvarint reads an unsigned 32-bit varint of five bytes at most; n is 0 when
// there is none.
func uvarint(b []byte) (v uint32, n int) {
	for i := 0; i < len(b) && i < 5; i++ {
		c := b[i]
		if i == 4 && c > 0x0f {
			return 0, 0
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// appendUvarint appends v as an unsigned varint.
func appendUvarint(dst []byte, v uint32) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}
