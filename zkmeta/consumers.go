package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
)

// ConsumerOffsetPath is where OffsetCommit v0 keeps a group's offset. A group's
// name is in it as it is, whatever that makes of the path, as with Kafka.
func ConsumerOffsetPath(group string, tp cluster.TopicPartition) string {
	return ConsumersPath + "/" + group + "/offsets/" + tp.Topic + "/" + strconv.Itoa(int(tp.Partition))
}

// EncodeConsumerOffset writes an offset: a decimal.
func EncodeConsumerOffset(o cluster.Offset) []byte { return strconv.AppendInt(nil, int64(o), 10) }

// DecodeConsumerOffset reads an offset; there is none in a znode without data.
func DecodeConsumerOffset(path string, data []byte) (o cluster.Offset, found bool, err error) {
	if data == nil {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, false, badZnode(path, fmt.Errorf("%q is no offset", clip(string(data))))
	}
	return cluster.Offset(n), true, nil
}

// GetConsumerOffset reads the offset that a group committed with OffsetCommit v0.
func GetConsumerOffset(ctx context.Context, s Session, group string, tp cluster.TopicPartition) (o cluster.Offset, found bool, err error) {
	path := ConsumerOffsetPath(group, tp)
	if err := ValidatePath(path, false); err != nil {
		return 0, false, err
	}
	data, _, err := s.Get(ctx, path, false)
	if errors.Is(err, ErrNoNode) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return DecodeConsumerOffset(path, data)
}

// SetConsumerOffset writes the offset of a group, and makes its znode the first
// time.
func SetConsumerOffset(ctx context.Context, s Session, group string, tp cluster.TopicPartition, o cluster.Offset) error {
	path := ConsumerOffsetPath(group, tp)
	if err := ValidatePath(path, false); err != nil {
		return err
	}
	for {
		_, err := s.Multi(ctx, Set(path, EncodeConsumerOffset(o), cluster.AnyZKVersion))
		if !errors.Is(err, ErrNoNode) {
			return err
		}
		err = CreateWithParents(ctx, s, path, EncodeConsumerOffset(o))
		if !errors.Is(err, ErrNodeExists) { // somebody else's commit was the first
			return err
		}
	}
}
