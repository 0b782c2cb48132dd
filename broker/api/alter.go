package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol"
	"github.com/kbroker/kbroker/zkmeta"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// resource is what has configs.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alteration is a change of one resource's configs.
type alteration struct {
	res   resource
	keys  []string // those named
	nulls bool     // a value that has to be there is null
	twice bool     // the request names the resource twice
	apply func(old config.Values) (config.Values, error)
}

// message is the text with which an alteration is refused.
func (a alteration) message(err error) string {
	if bad := (*config.InvalidError)(nil); errors.As(err, &bad) {
		kind := "TOPIC"
		if a.res.kind == kmsg.ConfigResourceTypeBroker {
			kind = "BROKER"
		}
		return bad.ForResource(kind, a.res.name)
	}
	return err.Error()
}

// code is its error code: Kafka calls a wrong config of a topic
// INVALID_CONFIG, of a broker INVALID_REQUEST.
func (a alteration) code(err error) int16 {
	if a.res.kind == kmsg.ConfigResourceTypeBroker && errors.Is(err, config.ErrInvalid) {
		return int16(protocol.ErrInvalidRequest)
	}
	return CodeOf(err)
}

// errDone ends an update without a write.
var errDone = errors.New("validated only")

// alter carries out an alteration, or validates only.
func (c *Call) alter(a alteration, validateOnly bool) error {
	if err := a.check(); err != nil {
		return err
	}
	entity, validate, err := c.alterTarget(a.res)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), metadataTimeout)
	defer cancel()
	err = c.h.Configs.Update(ctx, entity, func(old map[string]string) (map[string]string, error) {
		next, err := a.apply(old)
		if err == nil {
			err = validate(next)
		}
		if err == nil && validateOnly {
			err = errDone
		}
		return next, err
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

func (a alteration) check() error {
	sorted := slices.Sorted(slices.Values(a.keys))
	switch {
	case a.twice:
		return fmt.Errorf("%w: the resource is named more than once", protocol.ErrInvalidRequest)
	case a.nulls:
		return fmt.Errorf("%w: null is no value", protocol.ErrInvalidRequest)
	case len(slices.Compact(sorted)) != len(a.keys):
		return fmt.Errorf("%w: a key is named more than once", protocol.ErrInvalidRequest)
	}
	return nil
}

// alterTarget finds where a resource's configs are kept and what judges them.
func (c *Call) alterTarget(r resource) (zkmeta.ConfigChange, func(config.Values) error, error) {
	h := c.h
	none := zkmeta.ConfigChange{}
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		if !c.Allowed(OpAlterConfigs, ResTopic, r.name) {
			return none, nil, protocol.ErrTopicAuthorizationFailed
		}
		if r.name == "" {
			return none, nil, fmt.Errorf("%w: a default for all topics is not supported", protocol.ErrInvalidRequest)
		}
		if _, ok := h.Metadata.Topic(r.name); !ok {
			return none, nil, fmt.Errorf("%w: '%s'", protocol.ErrUnknownTopicOrPartition, r.name)
		}
		validate := func(v config.Values) error { return config.ValidateTopicConfig(h.Config(), v) }
		return zkmeta.ConfigChange{Type: zkmeta.TopicConfigs, Name: r.name}, validate, nil
	case kmsg.ConfigResourceTypeBroker:
		if !c.Allowed(OpAlterConfigs, ResCluster, ClusterName) {
			return none, nil, protocol.ErrClusterAuthorizationFailed
		}
		name := zkmeta.DefaultEntity
		if r.name != "" {
			if err := h.isThisBroker(r.name); err != nil {
				return none, nil, err
			}
			name = itoa(int32(h.Self))
		}
		validate := func(v config.Values) error { return h.Config().ValidateDynamic(v, r.name != "") }
		return zkmeta.ConfigChange{Type: zkmeta.BrokerConfigs, Name: name}, validate, nil
	}
	return none, nil, fmt.Errorf("%w: configs of resources of type %d cannot be altered here", protocol.ErrInvalidRequest, r.kind)
}
