//go:build integration

package integration

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// hidden are fields whose values differ from run to run or from broker to
// broker by right; only whether they are set is shown.
var hidden = map[string]bool{
	"ClusterID": true, "Port": true, "Dir": true, "TotalBytes": true, "UsableBytes": true, "ProducerID": true,
	"Documentation": true, "LastTimestamp": true, "FinalizedFeaturesEpoch": true, "SessionID": true,
}

// skipped are no part of the answer, and the text of errors, which is each
// broker's own.
var skipped = map[string]bool{"Version": true, "UnknownTags": true, "ErrorMessage": true}

// show prints an answer: a line a field, elements of lists of structures in
// the order of their text, since Apache Kafka answers some lists in the order
// of a hash table.
func (s *smoke) show(resp kmsg.Response) string {
	var out strings.Builder
	if versions, ok := resp.(*kmsg.ApiVersionsResponse); ok {
		versions.ApiKeys = slices.DeleteFunc(versions.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
			return !slices.Contains(issueAPIs, k.ApiKey)
		})
	}
	s.showStruct(&out, reflect.ValueOf(resp).Elem(), "  ")
	return out.String()
}

func (s *smoke) showStruct(out *strings.Builder, v reflect.Value, indent string) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !skipped[name] {
			s.showField(out, name, v.Field(i), indent)
		}
	}
}

func (s *smoke) showField(out *strings.Builder, name string, v reflect.Value, indent string) {
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		s.showBytes(out, name, v.Bytes(), v.IsNil(), indent)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		s.showList(out, name, v, indent)
	case v.Kind() == reflect.Struct:
		fmt.Fprintf(out, "%s%s\n", indent, name)
		s.showStruct(out, v, indent+"  ")
	default:
		fmt.Fprintf(out, "%s%s %s\n", indent, name, s.showValue(name, v))
	}
}

func (s *smoke) showList(out *strings.Builder, name string, v reflect.Value, indent string) {
	if v.IsNil() {
		fmt.Fprintf(out, "%s%s null\n", indent, name)
		return
	}
	fmt.Fprintf(out, "%s%s %d\n", indent, name, v.Len())
	var elements []string
	for i := range v.Len() {
		var one strings.Builder
		s.showStruct(&one, v.Index(i), indent+"    ")
		elements = append(elements, indent+"  -\n"+one.String())
	}
	slices.Sort(elements)
	out.WriteString(strings.Join(elements, ""))
}

func (s *smoke) showValue(name string, v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "null"
		}
		v = v.Elem()
	}
	if id, ok := v.Interface().([16]byte); ok {
		if topic, known := s.ids[id]; known {
			return "id of " + topic
		}
		if id == [16]byte{} || id == [16]byte{1} {
			return fmt.Sprintf("%x", id)
		}
		return "an id"
	}
	if hidden[name] {
		switch v.Kind() {
		case reflect.String:
			return fmt.Sprintf("set %v", v.Len() > 0)
		default:
			return fmt.Sprintf("not negative %v", v.Int() >= 0)
		}
	}
	if v.Kind() == reflect.String {
		return fmt.Sprintf("%q", v.String())
	}
	return fmt.Sprint(v.Interface())
}

// showBytes prints records by their batches, and old formats by their messages.
func (s *smoke) showBytes(out *strings.Builder, name string, raw []byte, null bool, indent string) {
	switch {
	case null:
		fmt.Fprintf(out, "%s%s null\n", indent, name)
	case len(raw) > 16 && raw[16] == 2:
		fmt.Fprintf(out, "%s%s %d bytes\n", indent, name, len(raw))
		for _, b := range splitBatches(s.t, raw) {
			fmt.Fprintf(out, "%s  batch %d to %d, epoch %d, attributes %d, crc %08x\n", indent, b.FirstOffset, b.lastOffset(),
				b.PartitionLeaderEpoch, b.Attributes, binary.BigEndian.Uint32(b.raw[17:]))
		}
	case len(raw) > 16:
		fmt.Fprintf(out, "%s%s magic %d\n", indent, name, raw[16])
		for _, line := range showRecs(openSet(s.t, raw, raw[16])) {
			fmt.Fprintf(out, "%s  %s\n", indent, line)
		}
	default:
		fmt.Fprintf(out, "%s%s %x\n", indent, name, raw)
	}
}
