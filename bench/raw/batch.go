package raw

import (
	"math/rand/v2"

	"github.com/kbroker/kbroker/protocol/record"
)

// BatchOptions describe a batch of random, uncompressed records.
type BatchOptions struct {
	Bytes       int // most bytes of the whole batch; 0: no bound but Records
	Records     int // most records; 0: no bound but Bytes
	RecordBytes int // of each record's value
	TimestampMs int64
	Seed        uint64
}

// NewBatch builds a batch of one record at least.
func NewBatch(o BatchOptions) record.Batch {
	random := rand.New(rand.NewPCG(o.Seed, 1))
	b := record.NewBuilder(record.BuilderOptions{})
	value := make([]byte, o.RecordBytes)
	// What a record costs beside its value: seven fields, of which the longest
	// are the two lengths.
	const most = 5 + 1 + 1 + 5 + 1 + 5 + 1
	for n := 0; n == 0 || (o.Records == 0 || n < o.Records) && (o.Bytes == 0 || b.Size()+o.RecordBytes+most <= o.Bytes); n++ {
		if n > 0 && o.Records == 0 && o.Bytes == 0 {
			break
		}
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		b.Append(o.TimestampMs, nil, value, nil)
	}
	return b.Build()
}
