package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Listing is the answer of /v1/partitions: what one broker hosts. What it does
// not lead is as of its own log; the leader knows the followers.
type Listing struct {
	Broker     int32       `json:"broker"`
	ClusterID  string      `json:"clusterId"`
	Controller int32       `json:"controller"` // -1: none is known
	Live       []int32     `json:"liveBrokers"`
	Hosted     int         `json:"hosted"` // replicas on this broker, whatever was asked for
	Partitions []Partition `json:"partitions"`
	Next       string      `json:"next,omitempty"` // ask on with after=…; empty: that was all
}

// Partition is one replica.
type Partition struct {
	Topic          string     `json:"topic"`
	Partition      int32      `json:"partition"`
	Role           string     `json:"role"`   // leader, follower, none, offline
	Leader         int32      `json:"leader"` // -1: none
	LeaderEpoch    int32      `json:"leaderEpoch"`
	PartitionEpoch int32      `json:"partitionEpoch"`
	LogStart       int64      `json:"logStart"`
	LSO            int64      `json:"lso"`
	HW             int64      `json:"hw"`
	LEO            int64      `json:"leo"`
	ISR            []int32    `json:"isr"`
	MaximalISR     []int32    `json:"maximalIsr"`
	MinISR         int32      `json:"minIsr"`
	Assignment     Assignment `json:"assignment"`
	Size           int64      `json:"size"`
	Segments       int        `json:"segments"`
	Followers      []Follower `json:"followers,omitempty"` // as leader, in the assignment's order
}

// Assignment is where the replicas belong.
type Assignment struct {
	Replicas []int32 `json:"replicas"`
	Adding   []int32 `json:"adding,omitempty"`
	Removing []int32 `json:"removing,omitempty"`
}

// Follower is what the leader knows of one. Nothing is known of a follower that
// has not fetched in this epoch.
type Follower struct {
	Broker     int32  `json:"broker"`
	RemoteLEO  *int64 `json:"remoteLeo"`
	Lag        *int64 `json:"lag"` // the leader's LEO less RemoteLEO
	CaughtUpMs *int64 `json:"caughtUpMs"`
}

// Query says which partitions are asked for.
type Query struct {
	Topic string // exactly; "": all
	// AfterTopic and AfterPartition are where the last answer ended; the zero
	// values are before all.
	AfterTopic     string
	AfterPartition int32
	Limit          int // 1 to MaxPartitions
}

// MaxPartitions are told in one answer.
const MaxPartitions = 10_000

// Wants reports whether a partition is within the query, its limit aside.
func (q Query) Wants(topic string, partition int32) bool {
	switch {
	case q.Topic != "" && topic != q.Topic:
		return false
	case q.AfterTopic == "":
		return true
	}
	return topic > q.AfterTopic || topic == q.AfterTopic && partition > q.AfterPartition
}

// Cursor is the after=… that asks on behind a partition.
func Cursor(topic string, partition int32) string {
	return topic + "-" + strconv.Itoa(int(partition))
}

func parseQuery(v url.Values) (Query, error) {
	q := Query{Limit: MaxPartitions}
	for name := range v {
		if name != "topic" && name != "after" && name != "limit" {
			return q, fmt.Errorf("unknown parameter %q: there are topic, after and limit", name)
		}
	}
	q.Topic = v.Get("topic")
	if after := v.Get("after"); after != "" {
		i := strings.LastIndexByte(after, '-')
		n, err := strconv.ParseInt(after[i+1:], 10, 32)
		if i < 1 || err != nil || n < 0 {
			return q, fmt.Errorf("after=%q: want TOPIC-PARTITION", after)
		}
		q.AfterTopic, q.AfterPartition = after[:i], int32(n)
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxPartitions {
			return q, fmt.Errorf("limit=%q: want 1 to %d", text, MaxPartitions)
		}
		q.Limit = n
	}
	return q, nil
}
