package protocol

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DecodeRequest checks the body's shape and decodes it. Byte fields of the
// request alias the body, strings do not. Bytes after the request's end are
// ignored, as Kafka does.
func DecodeRequest(h Header, body []byte) (kmsg.Request, error) {
	req, _, err := DecodeShared(h, body)
	return req, err
}

// DecodeShared is DecodeRequest that also tells whether the request shares
// memory with the body, so that the body must outlive it.
func DecodeShared(h Header, body []byte) (req kmsg.Request, shares bool, err error) {
	req = kmsg.RequestForKey(h.Key)
	if req == nil || lookup(h.Key) == nil {
		return nil, false, fmt.Errorf("%w: key %d", ErrUnsupported, h.Key)
	}
	if h.UnknownAPIVersions() {
		req.SetVersion(0)
		return req, false, nil
	}
	if _, shares, err = walkShape(requestShapes(), h.Key, h.Version, body); err != nil {
		return nil, false, err
	}
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, false, fmt.Errorf("%w %s v%d: %w", ErrMalformed, lookup(h.Key).Name, h.Version, err)
	}
	if r, ok := req.(*kmsg.StopReplicaRequest); ok && h.Version == stopReplicaSwapped {
		readStopReplica(r, body)
	}
	return req, shares, nil
}

// AppendRequest appends a whole request frame: size, header, body.
func AppendRequest(dst []byte, clientID string, correlationID int32, req kmsg.Request) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if req.Key() != ControlledShutdown || req.GetVersion() != 0 {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
		dst = append(dst, clientID...)
		if req.IsFlexible() {
			dst = append(dst, 0)
		}
	}
	return PutSize(appendBody(dst, req), start)
}

func appendBody(dst []byte, req kmsg.Request) []byte {
	body := len(dst)
	dst = req.AppendTo(dst)
	if r, ok := req.(*kmsg.StopReplicaRequest); ok && r.Version == stopReplicaSwapped {
		writeStopReplica(r, dst[body:])
	}
	return dst
}

// EncodeResponse appends a whole response frame: size, header and body, in the
// shape of the request's version.
func EncodeResponse(dst []byte, h Header, resp kmsg.Response) []byte {
	start := len(dst)
	dst = AppendResponseHeader(dst, h)
	resp.SetVersion(h.BodyVersion())
	return PutSize(resp.AppendTo(dst), start)
}

// AppendResponseHeader appends an empty size and the response header. PutSize
// fills the size in.
func AppendResponseHeader(dst []byte, h Header) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	// ApiVersions answers keep the old header: the client does not know yet
	// what the broker speaks.
	if api := lookup(h.Key); api != nil && api.Flexible(h.Version) && h.Key != ApiVersions {
		dst = append(dst, 0)
	}
	return dst
}

// PutSize makes dst[start:] a frame: its first four bytes count the rest.
func PutSize(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// DecodeResponse reads a response frame (without its size) to the request req.
// Byte fields alias the frame. Its shape is checked as a request's is.
func DecodeResponse(req kmsg.Request, frame []byte) (correlationID int32, resp kmsg.Response, err error) {
	if len(frame) < 4 {
		return 0, nil, fmt.Errorf("%w response header: %d bytes", ErrMalformed, len(frame))
	}
	correlationID = int32(binary.BigEndian.Uint32(frame))
	body := frame[4:]
	resp = req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != ApiVersions {
		if body, err = skipTags(body); err != nil {
			return correlationID, nil, fmt.Errorf("response header: %w", err)
		}
	}
	if Supported(resp.Key(), resp.GetVersion()) {
		if err := CheckResponseShape(resp.Key(), resp.GetVersion(), body); err != nil {
			return correlationID, nil, err
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return correlationID, nil, fmt.Errorf("%w response to %s v%d: %w", ErrMalformed, kmsg.NameForKey(resp.Key()), resp.GetVersion(), err)
	}
	return correlationID, resp, nil
}

// kmsg has the controller's epoch and the KRaft flag of StopReplica v4 the
// wrong way round. Both together are five bytes, so the rest is read right and
// only they need mending.
const (
	stopReplicaSwapped = 4
	stopReplicaEpochAt = 4 // after the controller's id
)

func readStopReplica(r *kmsg.StopReplicaRequest, body []byte) {
	r.IsKRaftController = body[stopReplicaEpochAt] != 0
	r.ControllerEpoch = int32(binary.BigEndian.Uint32(body[stopReplicaEpochAt+1:]))
}

func writeStopReplica(r *kmsg.StopReplicaRequest, body []byte) {
	body[stopReplicaEpochAt] = 0
	if r.IsKRaftController {
		body[stopReplicaEpochAt] = 1
	}
	binary.BigEndian.PutUint32(body[stopReplicaEpochAt+1:], uint32(r.ControllerEpoch))
}
