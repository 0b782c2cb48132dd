package client

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// appendRequest appends the whole frame: size, header and body.
func appendRequest(dst []byte, clientID string, correlation int32, req kmsg.Request) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	return f.AppendRequest(dst, req, correlation)
}

// parseResponse reads a frame without its size.
func parseResponse(frame []byte, correlation int32, req kmsg.Request) (kmsg.Response, error) {
	resp := req.ResponseKind()
	if got := int32(binary.BigEndian.Uint32(frame)); got != correlation {
		return nil, fmt.Errorf("%w: correlation id %d, want %d", ErrMalformed, got, correlation)
	}
	body := frame[4:]
	if resp.IsFlexible() && req.Key() != 18 { // ApiVersions answers keep the old header
		rest, err := skipTags(body)
		if err != nil {
			return nil, err
		}
		body = rest
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %s v%d: %w", ErrMalformed, kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// skipTags steps over the tagged fields of a flexible response header.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: header tags", ErrMalformed)
	}
	for b = b[n:]; count > 0; count-- {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: header tags", ErrMalformed)
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return nil, fmt.Errorf("%w: header tags", ErrMalformed)
		}
		b = b[n+m+int(size):]
	}
	return b, nil
}
