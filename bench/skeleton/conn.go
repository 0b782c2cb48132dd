package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is one client, served by one goroutine.
type conn struct {
	broker *broker
	tc     *net.TCPConn
	in     []byte // in[r:w] is not served yet
	r, w   int
	out    []byte // answers that are not sent yet
	client string // its id
	piece  []byte // for pread
}

// chunk is what is read at once; larger frames make in grow.
const chunk = 64 << 10

// maxFrame is Kafka's socket.request.max.bytes.
const maxFrame = 100 << 20

func (c *conn) run() error {
	c.in = make([]byte, chunk)
	for {
		frame, err := c.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.answer(frame); err != nil {
			return err
		}
	}
}

// next gives the next frame. Before it waits for one it sends the answers.
func (c *conn) next() ([]byte, error) {
	need := 4
	for {
		if c.w-c.r >= 4 {
			n := binary.BigEndian.Uint32(c.in[c.r:])
			if n > maxFrame {
				return nil, fmt.Errorf("frame of %d bytes", n)
			}
			need = 4 + int(n)
		}
		if c.w-c.r >= need {
			frame := c.in[c.r+4 : c.r+need]
			c.r += need
			return frame, nil
		}
		if err := c.flush(); err != nil {
			return nil, err
		}
		if c.r > 0 {
			c.w = copy(c.in, c.in[c.r:c.w])
			c.r = 0
		}
		if need > len(c.in) {
			c.in = append(make([]byte, 0, need+chunk), c.in[:c.w]...)[:need+chunk]
		}
		// No more than this frame if it is a large one: what comes after it
		// would have to be moved.
		end := len(c.in)
		if need > chunk {
			end = need
		}
		n, err := c.tc.Read(c.in[c.w:end])
		if err != nil {
			return nil, err
		}
		c.w += n
	}
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.tc.Write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *conn) answer(frame []byte) error {
	h, body, err := protocol.ParseHeaderAfter(c.client, frame)
	if err != nil {
		return err
	}
	c.client = h.ClientID
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.BodyVersion())
	if !h.UnknownAPIVersions() {
		if err := req.ReadFrom(body); err != nil {
			return err
		}
	}
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		return c.produce(h, req)
	case *kmsg.FetchRequest:
		return c.fetch(h, req)
	case *kmsg.MetadataRequest:
		return c.reply(h, c.broker.metadata(req))
	case *kmsg.DeleteTopicsRequest:
		return c.deleteTopics(h, req)
	case *kmsg.ApiVersionsRequest:
		return c.reply(h, apiVersions(h, req))
	}
	return fmt.Errorf("no answer to %s", kmsg.NameForKey(h.Key))
}

func (c *conn) reply(h protocol.Header, resp kmsg.Response) error {
	c.out = protocol.EncodeResponse(c.out, h, resp)
	return nil
}

// apis is what is answered, and up to which version.
var apis = map[int16]int16{protocol.Produce: 11, protocol.Fetch: 12, protocol.Metadata: 12, protocol.ApiVersions: 3, protocol.DeleteTopics: 5}

func apiVersions(h protocol.Header, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if h.UnknownAPIVersions() {
		resp.ErrorCode = int16(protocol.ErrUnsupportedVersion)
	}
	for key := range int16(128) {
		if most, ok := apis[key]; ok {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, most
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	}
	return resp
}

func (c *conn) produce(h protocol.Header, req *kmsg.ProduceRequest) error {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, rt := &req.Topics[i], &resp.Topics[i]
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			out := &rt.Partitions[j]
			out.Default()
			out.Partition = t.Partitions[j].Partition
			p, err := c.broker.partition(t.Topic, out.Partition)
			if err == nil {
				out.BaseOffset, err = p.append(t.Partitions[j].Records)
			}
			out.ErrorCode = protocol.CodeOf(err)
		}
	}
	if req.Acks == 0 {
		return nil
	}
	return c.reply(h, resp)
}

func (c *conn) deleteTopics(h protocol.Header, req *kmsg.DeleteTopicsRequest) error {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	for _, name := range req.TopicNames {
		c.broker.remove(name)
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic = kmsg.StringPtr(name)
		resp.Topics = append(resp.Topics, t)
	}
	return c.reply(h, resp)
}
