package record

import (
	"errors"

	"github.com/kbroker/kbroker/cluster"
)

// DownConvert turns stored entries into format toMagic (0 or 1) for consumers
// that know no newer one. Offsets stay; headers and control batches are
// dropped, and so are uncompressed records below firstOffset, as messages of
// the old formats stand alone. Entries that are old enough are copied as they
// are. An incomplete entry at the end is dropped.
//
// On an error, out holds what was converted before it: a fetch returns that,
// and the error only when there is nothing. Zstd, which the old formats do not
// have, is such an error: it wraps ErrUnsupportedCompression.
func DownConvert(buf []byte, toMagic int8, firstOffset cluster.Offset) (out []byte, err error) {
	if toMagic != MagicV0 && toMagic != MagicV1 {
		return nil, rejectf(ErrUnsupportedForMessageFormat, FaultNone, "cannot convert down to magic %d", toMagic)
	}
	d := pooledDecompressor(0)
	defer d.release()
	for {
		entry, rest, err := Next(buf)
		if errors.Is(err, ErrShort) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		next, err := downConvertEntry(out, entry, toMagic, firstOffset, d)
		if err != nil {
			return out, err
		}
		out, buf = next, rest
	}
}

func downConvertEntry(out, entry []byte, toMagic int8, firstOffset cluster.Offset, d *Decompressor) ([]byte, error) {
	magic := int8(entry[posMagic])
	if magic <= toMagic {
		if Legacy(entry).Codec() == CodecZstd {
			return out, rejectf(ErrUnsupportedCompression, FaultNone, "zstd cannot be converted down")
		}
		return append(out, entry...), nil
	}
	if magic < MagicV2 {
		return downConvertLegacy(out, Legacy(entry), toMagic, firstOffset, d)
	}
	b := Batch(entry)
	if err := b.CheckHeader(); err != nil {
		return out, err
	}
	if b.Control() {
		return out, nil
	}
	if b.Codec() == CodecZstd {
		return out, rejectf(ErrUnsupportedCompression, FaultNone, "zstd cannot be converted down")
	}
	lb, err := NewLegacyBuilder(out, LegacyOptions{
		Magic: toMagic, Codec: b.Codec(), LogAppendTime: b.LogAppendTime(), AppendTimeMs: b.MaxTimestamp(),
	})
	if err != nil {
		return out, err
	}
	defer lb.Abandon()
	it := b.Iter(d)
	defer it.Close()
	for it.Next() {
		if b.Codec() == CodecNone && it.Offset() < firstOffset {
			continue
		}
		r := it.Record()
		lb.Append(it.Offset(), it.Timestamp(), r.Key, r.Value)
	}
	if it.Err() != nil {
		return out, it.Err()
	}
	return lb.Build(), nil
}

// downConvertLegacy converts format 1 to 0.
func downConvertLegacy(out []byte, m Legacy, toMagic int8, firstOffset cluster.Offset, d *Decompressor) ([]byte, error) {
	if m.Codec() == CodecZstd {
		return out, rejectf(ErrUnsupportedCompression, FaultNone, "zstd cannot be converted down")
	}
	lb, err := NewLegacyBuilder(out, LegacyOptions{
		Magic: toMagic, Codec: m.Codec(), LogAppendTime: m.LogAppendTime(), AppendTimeMs: m.Timestamp(),
	})
	if err != nil {
		return out, err
	}
	defer lb.Abandon()
	it := m.Iter(d)
	defer it.Close()
	for it.Next() {
		if m.Codec() == CodecNone && it.Offset() < firstOffset {
			continue
		}
		r := it.Record()
		lb.Append(it.Offset(), it.Timestamp(), r.Key, r.Value)
	}
	if it.Err() != nil {
		return out, it.Err()
	}
	return lb.Build(), nil
}
