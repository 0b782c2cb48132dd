package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OpKind is an operation of IncrementalAlterConfigs, with its wire number.
type OpKind int8

// The operations.
const (
	OpSet      OpKind = 0
	OpDelete   OpKind = 1
	OpAppend   OpKind = 2
	OpSubtract OpKind = 3
)

// Op changes one key of a topic's or a broker's configs.
type Op struct {
	Kind  OpKind
	Key   string
	Value string
}

// ApplyTopicOps is a topic's overrides after the operations, in order. Whether
// the result is valid is for ValidateTopicConfig to say.
func ApplyTopicOps(current Values, ops []Op) (Values, error) {
	return apply(current, ops, func(name string) *key { return topicTable[name] })
}

// ApplyBrokerOps is a broker's (or the cluster's default) dynamic configs after
// the operations, in order. Whether the result is valid is for ValidateDynamic
// to say.
func ApplyBrokerOps(current Values, ops []Op) (Values, error) {
	return apply(current, ops, keyOf)
}

func apply(current Values, ops []Op, find func(string) *key) (Values, error) {
	out := maps.Clone(current)
	if out == nil {
		out = Values{}
	}
	for _, op := range ops {
		switch op.Kind {
		case OpSet:
			out[op.Key] = op.Value
		case OpDelete:
			delete(out, op.Key)
		case OpAppend, OpSubtract:
			list, err := listOp(out, op, find(op.Key))
			if err != nil {
				return nil, err
			}
			out[op.Key] = list
		default:
			return nil, &InvalidError{Key: op.Key, Value: op.Value, Problem: fmt.Sprintf("unknown operation %d", op.Kind), kind: badTopic}
		}
	}
	return out, nil
}

// listOp adds elements to a list, or takes them away. An unset key starts from
// Kafka's default for it, not from what is in force.
func listOp(v Values, op Op, k *key) (string, *InvalidError) {
	verb := "append"
	if op.Kind == OpSubtract {
		verb = "subtract"
	}
	if k == nil {
		return "", &InvalidError{Key: op.Key, Value: op.Value, Problem: "unknown key", kind: badTopic, text: "Unknown config name: " + op.Key}
	}
	if k.Type != List {
		return "", &InvalidError{Key: op.Key, Value: op.Value, Problem: verb + " works on lists only", kind: badTopic,
			text: "Config value " + verb + " is not allowed for config key: " + op.Key}
	}
	old, set := v[op.Key]
	if !set {
		old = k.Default
	}
	have := rawList(old)
	for _, e := range rawList(op.Value) {
		i := slices.Index(have, e)
		switch {
		case op.Kind == OpAppend && i < 0:
			have = append(have, e)
		case op.Kind == OpSubtract && i >= 0:
			have = slices.Delete(have, i, i+1)
		}
	}
	return strings.Join(have, ","), nil
}

// rawList splits as Java does: empty elements at the end are no elements.
func rawList(s string) []string {
	if s = strings.TrimRight(s, ","); s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
