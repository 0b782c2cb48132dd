//go:build integration

package integration

import (
	"encoding/binary"
	"hash/crc32"
)

// messageSet encodes records in format v0 or v1, compressed as one wrapper
// message when there is a codec.
func messageSet(magic int8, codec int16, recs ...rec) []byte {
	var set []byte
	for i, r := range recs {
		set = append(set, message(magic, 0, int64(i), r)...)
	}
	if codec == codecNone {
		return set
	}
	last := recs[len(recs)-1]
	return message(magic, int8(codec), int64(len(recs)-1), rec{ts: last.ts, value: compress(codec, set)})
}

func message(magic, attributes int8, offset int64, r rec) []byte {
	body := []byte{byte(magic), byte(attributes)}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(r.ts))
	}
	for _, part := range [][]byte{r.key, r.value} {
		if part == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(part)))
		body = append(body, part...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}
