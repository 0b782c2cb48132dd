package raw

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/bench/result"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/protocol/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Step is one Fetch and what it gave.
type Step struct {
	Partition int32
	Offset    int64
	Records   int64 // in whole batches
	Bytes     int64 // of whole batches
	answer    int   // bytes of the records in the answer, with a cut batch at the end
}

// VerifyOptions describe a reading of whole partitions.
type VerifyOptions struct {
	Addr       string
	Topic      string
	Partitions []int32
	MaxBytes   int32
	// CRCs are those that batches may have; none: any that is right.
	CRCs []uint32
}

// Verify reads the partitions from the beginning to HW. Offsets have to follow
// each other from 0, every CRC has to be right and to be one of those sent. It
// answers what was read and by which fetches.
func Verify(ctx context.Context, o VerifyOptions) (result.Counts, []Step, error) {
	c, err := Dial(ctx, o.Addr)
	if err != nil {
		return result.Counts{}, nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	var sum result.Counts
	var steps []Step
	for _, p := range o.Partitions {
		from := len(steps)
		if steps, err = verifyOne(c, &o, p, steps); err != nil {
			return sum, steps, fmt.Errorf("verify %s-%d: %w", o.Topic, p, err)
		}
		for _, s := range steps[from:] {
			sum.Add(result.Counts{Requests: 1, Records: s.Records, Bytes: s.Bytes})
		}
	}
	return sum, steps, nil
}

func verifyOne(c *Conn, o *VerifyOptions, partition int32, steps []Step) ([]Step, error) {
	next := int64(0)
	for {
		r, err := c.Do(newFetch(o.Topic, partition, next, o.MaxBytes))
		if err != nil {
			return steps, err
		}
		resp := r.(*kmsg.FetchResponse)
		if err := protocol.Error(resp.ErrorCode); err != nil {
			return steps, err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return steps, errors.New("the answer is not of one partition")
		}
		part := &resp.Topics[0].Partitions[0]
		if err := protocol.Error(part.ErrorCode); err != nil {
			return steps, err
		}
		if len(part.RecordBatches) > 0 {
			s, err := verifyBatches(o, part.RecordBatches, partition, next)
			if err != nil {
				return steps, err
			}
			steps = append(steps, s)
			next += s.Records
		}
		if next >= part.HighWatermark {
			return steps, nil
		}
		if len(part.RecordBatches) == 0 {
			return steps, fmt.Errorf("no records at offset %d, HW is %d", next, part.HighWatermark)
		}
	}
}

// verifyBatches checks the batches of one answer.
func verifyBatches(o *VerifyOptions, b []byte, partition int32, from int64) (Step, error) {
	s := Step{Partition: partition, Offset: from, answer: len(b)}
	for len(b) > 0 {
		one, rest, err := record.Next(b)
		if errors.Is(err, record.ErrShort) && s.Records > 0 {
			return s, nil // cut by the limit
		}
		if err != nil {
			return s, err
		}
		batch := record.Batch(one)
		if err := errors.Join(batch.CheckHeader(), batch.CheckCRC()); err != nil {
			return s, err
		}
		if len(o.CRCs) > 0 && !slices.Contains(o.CRCs, batch.CRC()) {
			return s, fmt.Errorf("offset %d: CRC %08x was never sent", batch.BaseOffset(), batch.CRC())
		}
		if int64(batch.BaseOffset()) != from+s.Records || int64(batch.LastOffsetDelta())+1 != int64(batch.Count()) {
			return s, fmt.Errorf("offset %d where %d was due, %d records up to +%d", batch.BaseOffset(), from+s.Records, batch.Count(), batch.LastOffsetDelta())
		}
		s.Records += int64(batch.Count())
		s.Bytes += int64(len(one))
		b = rest
	}
	return s, nil
}

// End is the offset that the next record of a partition gets. The partition
// must still have its first record.
func End(ctx context.Context, addr, topic string, partition int32) (int64, error) {
	c, err := Dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	req := newFetch(topic, partition, 0, 1)
	req.MaxWaitMillis = 0
	r, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	for _, t := range r.(*kmsg.FetchResponse).Topics {
		for _, p := range t.Partitions {
			return p.HighWatermark, protocol.Error(p.ErrorCode)
		}
	}
	return 0, errors.New("fetch: an empty answer")
}
