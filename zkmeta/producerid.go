package zkmeta

import (
	"math"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
)

// ProducerIDBlockLen is how many producer ids a broker takes at a time.
const ProducerIDBlockLen = 1000

// ProducerIDBlock is the block of producer ids given out last: First to Last,
// both in it.
type ProducerIDBlock struct {
	Broker      cluster.BrokerID
	First, Last cluster.ProducerID
}

// Encode writes the data of /latest_producer_id_block.
func (p ProducerIDBlock) Encode() []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 1)
		b.integer("broker", int64(p.Broker))
		b.text("block_start", strconv.FormatInt(int64(p.First), 10))
		b.text("block_end", strconv.FormatInt(int64(p.Last), 10))
	})
}

// DecodeProducerIDBlock reads the data of /latest_producer_id_block. ok is
// false when there is none, as before the first block was given out.
func DecodeProducerIDBlock(data []byte) (p ProducerIDBlock, ok bool, err error) {
	if len(data) == 0 {
		return p, false, nil
	}
	err = decodeObject(ProducerIDBlockPath, data, func(o object) {
		o.version(1, 1, true)
		p.Broker = cluster.BrokerID(o.integer("broker", math.MinInt32, math.MaxInt32))
		p.First = cluster.ProducerID(o.integerText("block_start", 0, math.MaxInt64))
		p.Last = cluster.ProducerID(o.integerText("block_end", 0, math.MaxInt64))
		if p.Last < p.First-1 {
			o.fail("the block ends at %d before it starts at %d", p.Last, p.First)
		}
	})
	return p, err == nil, err
}

// Next is the block after p for a broker; the first block of a cluster when
// there is none yet. ok is false when the ids are used up.
func (p ProducerIDBlock) Next(exists bool, broker cluster.BrokerID) (next ProducerIDBlock, ok bool) {
	if !exists {
		return ProducerIDBlock{broker, 0, ProducerIDBlockLen - 1}, true
	}
	if p.Last > math.MaxInt64-ProducerIDBlockLen {
		return ProducerIDBlock{}, false
	}
	return ProducerIDBlock{broker, p.Last + 1, p.Last + ProducerIDBlockLen}, true
}
