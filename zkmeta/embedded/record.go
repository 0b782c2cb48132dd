package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/kbroker/kbroker/zkmeta"
)

// The file:
//
//	header   "kbzkmeta", version u32, CRC u32 of these 12 bytes
//	frames   mark u32, length u32 of the body, CRC u32, body
//
// all big endian; the CRC is Castagnoli's over the frame's offset (u64) and its
// body, so that a frame is valid only where it was written. A body is one type
// byte and: for a snapshot chunk nodes, parents before children; for the
// snapshot's end the zxid and the number of nodes; for a batch transactions.
// First come the chunks, then the end, then batches. Each batch was one write
// and one fsync, so only the last frame can be torn by a crash.
const (
	fileMagic   = "kbzkmeta"
	fileVersion = 1
	headerLen   = 16
	frameMark   = 0x6b627a31 // "kbz1"
	frameHeader = 12

	// maxBody bounds what is written as one frame and believed when read.
	maxBody = 32 << 20
)

type frameType byte

const (
	frameChunk frameType = 1
	frameEnd   frameType = 2
	frameBatch frameType = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeHeader() []byte {
	b := append(make([]byte, 0, headerLen), fileMagic...)
	b = binary.BigEndian.AppendUint32(b, fileVersion)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func checkHeader(b []byte) error {
	if len(b) < headerLen || string(b[:8]) != fileMagic {
		return errors.New("not a kbroker metadata file")
	}
	version := binary.BigEndian.Uint32(b[8:])
	if crc32.Checksum(b[:12], castagnoli) != binary.BigEndian.Uint32(b[12:]) {
		return errors.New("the header is damaged")
	}
	if version > fileVersion || version == 0 {
		return fmt.Errorf("it has version %d, this kbroker reads up to %d: it was written by a newer one", version, fileVersion)
	}
	return nil
}

func frameCRC(offset int64, body []byte) uint32 {
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(offset))
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, body)
}

// appendFrame frames a body that will be written at the offset.
func appendFrame(dst []byte, offset int64, body []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, frameMark)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
	dst = binary.BigEndian.AppendUint32(dst, frameCRC(offset, body))
	return append(dst, body...)
}

var errTorn = errors.New("torn or damaged frame")

// splitFrame takes the frame at the begin of buf, which is the file from offset
// on.
func splitFrame(buf []byte, offset int64) (body, rest []byte, err error) {
	if len(buf) < frameHeader || binary.BigEndian.Uint32(buf) != frameMark {
		return nil, nil, errTorn
	}
	n := binary.BigEndian.Uint32(buf[4:])
	if n == 0 || n > maxBody || int64(n) > int64(len(buf)-frameHeader) {
		return nil, nil, errTorn
	}
	body = buf[frameHeader : frameHeader+n]
	if frameCRC(offset, body) != binary.BigEndian.Uint32(buf[8:]) {
		return nil, nil, errTorn
	}
	return body, buf[frameHeader+n:], nil
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b))+1)
	return append(dst, b...)
}

func appendPath(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendNode(dst []byte, path string, n *node) []byte {
	dst = appendPath(dst, path)
	dst = appendBytes(dst, n.data)
	for _, v := range []int64{int64(n.version), int64(n.creates), n.czxid, n.mzxid, n.ctime, n.mtime, n.owner} {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

func appendTxn(dst []byte, t txn) []byte {
	dst = binary.AppendVarint(dst, t.zxid)
	dst = binary.AppendVarint(dst, t.timeMs)
	dst = binary.AppendUvarint(dst, uint64(len(t.changes)))
	for _, c := range t.changes {
		dst = append(dst, byte(c.kind))
		dst = appendPath(dst, c.path)
		switch c.kind {
		case zkmeta.OpCreate:
			dst = appendBytes(dst, c.data)
			dst = binary.AppendVarint(dst, c.owner)
		case zkmeta.OpSet:
			dst = appendBytes(dst, c.data)
		}
	}
	return dst
}

// reader takes values off a body; the first mistake stays in err, and every
// length is checked against what is left.
type reader struct {
	buf []byte
	err error
}

var errBody = errors.New("a record does not decode")

func (r *reader) fail() {
	r.err = errBody
	r.buf = nil
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.buf)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.buf) == 0 {
		r.fail()
		return 0
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	return b
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.buf)) {
		r.fail()
		return nil
	}
	b := r.buf[:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) path() string {
	p := string(r.take(r.uvarint()))
	if r.err == nil && zkmeta.ValidatePath(p, false) != nil {
		r.fail()
	}
	return p
}

// bytes are a copy, so that one small value does not keep a whole frame.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	return append([]byte{}, r.take(n-1)...)
}

func (r *reader) node() (string, *node) {
	path, n := r.path(), &node{}
	n.data = r.bytes()
	n.version, n.creates = int32(r.varint()), int32(r.varint())
	n.czxid, n.mzxid, n.ctime, n.mtime, n.owner = r.varint(), r.varint(), r.varint(), r.varint(), r.varint()
	return path, n
}

func (r *reader) txn() txn {
	t := txn{zxid: r.varint(), timeMs: r.varint()}
	count := r.uvarint()
	for range count { // a lie ends at the first change that is not there
		c := change{kind: zkmeta.OpKind(r.byte()), path: r.path()}
		switch c.kind {
		case zkmeta.OpCreate:
			c.data, c.owner = r.bytes(), r.varint()
		case zkmeta.OpSet:
			c.data = r.bytes()
		case zkmeta.OpDelete:
		default:
			r.fail()
		}
		if r.err != nil {
			return t
		}
		t.changes = append(t.changes, c)
	}
	return t
}
