package main

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch answers every partition in turn and waits for the first one only: the
// load asks for one at a time.
func (c *conn) fetch(h protocol.Header, req *kmsg.FetchRequest) error {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	var payloads []protocol.Payload
	deadline := time.Now().Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	left := int(req.MaxBytes)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			out := kmsg.NewFetchResponseTopicPartition()
			out.Partition = t.Partitions[j].Partition
			p, err := c.broker.partition(t.Topic, out.Partition)
			out.ErrorCode = protocol.CodeOf(err)
			var part piece
			if err == nil {
				part, err = c.await(p, t.Partitions[j].FetchOffset, min(left, int(t.Partitions[j].PartitionMaxBytes)), deadline)
				if err != nil {
					return err
				}
			}
			left -= part.n
			out.HighWatermark, out.LastStableOffset, out.LogStartOffset = part.hw, part.hw, 0
			rt.Partitions = append(rt.Partitions, out)
			payloads = append(payloads, part)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	parts := protocol.EncodeFetch(c.out, h, resp, payloads)
	c.out = parts.Bytes[:0]
	return c.sendParts(parts)
}

// await reads, or waits for something to read until the deadline. Answers do
// not wait with it.
func (c *conn) await(p *partition, offset int64, most int, deadline time.Time) (piece, error) {
	for {
		part, wait := p.read(offset, most)
		if wait == nil || !time.Now().Before(deadline) {
			return part, nil
		}
		if err := c.flush(); err != nil {
			return part, err
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-wait:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sendParts sends a frame whose payloads lie in files.
func (c *conn) sendParts(parts protocol.Parts) error {
	at := 0
	for _, in := range parts.Inserts {
		p := in.Payload.(piece)
		if err := send(c.tc, parts.Bytes[at:in.At], p.n > 0); err != nil {
			return err
		}
		at = in.At
		if err := c.sendPiece(p); err != nil {
			return err
		}
	}
	return send(c.tc, parts.Bytes[at:], false)
}

func (c *conn) sendPiece(p piece) error {
	if p.n == 0 {
		return nil
	}
	if !c.broker.o.pread {
		return sendFile(c.tc, p.f, p.pos, p.n)
	}
	if cap(c.piece) < p.n {
		c.piece = make([]byte, p.n)
	}
	b := c.piece[:p.n]
	if _, err := p.f.ReadAt(b, p.pos); err != nil {
		return err
	}
	return send(c.tc, b, true)
}

// piece is a range of a file, and HW. It is a protocol.Payload for its length's
// sake.
type piece struct {
	f   *os.File
	pos int64
	n   int
	hw  int64
}

// Len implements protocol.Payload.
func (p piece) Len() int { return p.n }

// WriteTo implements protocol.Payload, but nobody calls it.
func (p piece) WriteTo(io.Writer) (int64, error) { return 0, errors.ErrUnsupported }

// Release implements protocol.Payload.
func (p piece) Release() {}
