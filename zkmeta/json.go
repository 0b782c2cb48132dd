package zkmeta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/kbroker/kbroker/cluster"
)

// object is a JSON object read as Kafka reads it: names are case-sensitive, the
// last of two equal names wins, what follows the object is ignored. Integers
// are integers: neither 1.0 nor "1" is one.
//
// The first mistake found is kept in *err, so that a decoder reads all its
// fields and looks once.
type object struct {
	fields map[string]json.RawMessage
	err    *error
}

// decodeObject lets read take fields from the object in data; any mistake comes
// back as ErrBadZnode with the path.
func decodeObject(path string, data []byte, read func(o object)) error {
	var err error
	o := object{err: &err}
	if err = parse(data, &o.fields); err == nil {
		if o.fields == nil {
			err = errors.New("not a JSON object")
		} else {
			read(o)
		}
	}
	return badZnode(path, err)
}

func badZnode(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", path, ErrBadZnode, err)
}

func parse(data []byte, into any) error {
	if len(data) == 0 {
		return errors.New("empty")
	}
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(into); err != nil {
		return fmt.Errorf("not the expected JSON: %w", err)
	}
	return nil
}

func (o object) fail(format string, args ...any) {
	if *o.err == nil {
		*o.err = fmt.Errorf(format, args...)
	}
}

// raw is a field that is there and not null.
func (o object) raw(name string) (json.RawMessage, bool) {
	v, ok := o.fields[name]
	return v, ok && string(v) != "null"
}

func (o object) required(name string) (json.RawMessage, bool) {
	v, ok := o.raw(name)
	if !ok {
		o.fail("%q is missing", name)
	}
	return v, ok
}

// version checks the field "version" against the range that is known. Kafka
// never looks at the version of some znodes; absent is first there.
func (o object) version(first, last int64, optional bool) int64 {
	if _, ok := o.raw("version"); !ok && optional {
		return first
	}
	v := o.integer("version", math.MinInt32, math.MaxInt32)
	if *o.err == nil && (v < first || v > last) {
		o.fail("version %d is not among the known ones, %d to %d", v, first, last)
	}
	return v
}

func (o object) integer(name string, low, high int64) int64 {
	v, ok := o.required(name)
	if !ok {
		return 0
	}
	n, err := parseInt(v, low, high)
	if err != nil {
		o.fail("%q: %w", name, err)
	}
	return n
}

func (o object) integerOr(name string, low, high, absent int64) int64 {
	if _, ok := o.raw(name); !ok {
		return absent
	}
	return o.integer(name, low, high)
}

func parseInt(v json.RawMessage, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not an integer", clip(string(v)))
	}
	if n < low || n > high {
		return 0, fmt.Errorf("%d is out of range", n)
	}
	return n, nil
}

func (o object) text(name string) string {
	v, ok := o.required(name)
	if !ok {
		return ""
	}
	return o.asText(name, v)
}

func (o object) textOr(name, absent string) string {
	v, ok := o.raw(name)
	if !ok {
		return absent
	}
	return o.asText(name, v)
}

func (o object) asText(name string, v json.RawMessage) string {
	if v[0] != '"' {
		o.fail("%q: %s is not a string", name, clip(string(v)))
		return ""
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		o.fail("%q: %w", name, err)
	}
	return s
}

// integerText is an integer that Kafka writes as a string.
func (o object) integerText(name string, low, high int64) int64 {
	s := o.text(name)
	if *o.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		o.fail("%q: %q is not an integer in range", name, clip(s))
	}
	return n
}

// object is a field that is an object; ok is false when it is absent.
func (o object) object(name string) (object, bool) {
	v, ok := o.raw(name)
	if !ok {
		return object{err: o.err}, false
	}
	return o.asObject(name, v)
}

func (o object) asObject(name string, v json.RawMessage) (object, bool) {
	in := object{err: o.err}
	if v[0] != '{' {
		o.fail("%q is not an object", name)
		return in, false
	}
	if err := json.Unmarshal(v, &in.fields); err != nil {
		o.fail("%q: %w", name, err)
		return in, false
	}
	return in, true
}

func (o object) list(name string) []json.RawMessage {
	v, ok := o.required(name)
	if !ok {
		return nil
	}
	return o.asList(name, v)
}

func (o object) asList(name string, v json.RawMessage) []json.RawMessage {
	if v[0] != '[' {
		o.fail("%q is not an array", name)
		return nil
	}
	var l []json.RawMessage
	if err := json.Unmarshal(v, &l); err != nil {
		o.fail("%q: %w", name, err)
	}
	return l
}

func (o object) brokers(name string) []cluster.BrokerID {
	v, ok := o.required(name)
	if !ok {
		return nil
	}
	return o.asBrokers(name, v)
}

func (o object) asBrokers(name string, v json.RawMessage) []cluster.BrokerID {
	list := o.asList(name, v)
	ids := make([]cluster.BrokerID, 0, len(list))
	for _, e := range list {
		n, err := parseInt(e, 0, math.MaxInt32)
		if err != nil {
			o.fail("%q: broker id %w", name, err)
			return nil
		}
		ids = append(ids, cluster.BrokerID(n))
	}
	return ids
}

// names are the object's field names, sorted.
func (o object) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// extra are the fields that are not known.
func (o object) extra(known ...string) map[string]json.RawMessage {
	var extra map[string]json.RawMessage
	for name, v := range o.fields {
		if slices.Contains(known, name) {
			continue
		}
		if extra == nil {
			extra = make(map[string]json.RawMessage)
		}
		extra[name] = v
	}
	return extra
}

// builder writes JSON in the order of the calls, without spaces, as Jackson.
type builder struct {
	buf   []byte
	comma bool
}

func (b *builder) sep() {
	if b.comma {
		b.buf = append(b.buf, ',')
	}
	b.comma = true
}

func (b *builder) open(c byte) {
	b.buf = append(b.buf, c)
	b.comma = false
}

func (b *builder) close(c byte) {
	b.buf = append(b.buf, c)
	b.comma = true
}

func (b *builder) name(name string) {
	b.sep()
	b.buf = append(appendText(b.buf, name), ':')
}

func (b *builder) integer(name string, n int64) {
	b.name(name)
	b.buf = strconv.AppendInt(b.buf, n, 10)
}

func (b *builder) text(name, s string) {
	b.name(name)
	b.buf = appendText(b.buf, s)
}

func (b *builder) textElement(s string) {
	b.sep()
	b.buf = appendText(b.buf, s)
}

func (b *builder) raw(name string, v json.RawMessage) {
	b.name(name)
	b.buf = append(b.buf, v...)
}

func (b *builder) null(name string) { b.raw(name, json.RawMessage("null")) }

func (b *builder) brokers(name string, ids []cluster.BrokerID) {
	b.name(name)
	b.open('[')
	for _, id := range ids {
		b.sep()
		b.buf = strconv.AppendInt(b.buf, int64(id), 10)
	}
	b.close(']')
}

func (b *builder) object(name string, fields func()) {
	b.name(name)
	b.open('{')
	fields()
	b.close('}')
}

func (b *builder) list(name string, elements func()) {
	b.name(name)
	b.open('[')
	elements()
	b.close(']')
}

// encodeObject collects the fields that write gives.
func encodeObject(write func(b *builder)) []byte {
	b := &builder{}
	b.open('{')
	write(b)
	b.close('}')
	return b.buf
}

// appendText writes a string as Jackson does: only quotes, backslashes and
// control characters are escaped.
func appendText(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r == '\b':
			dst = append(dst, '\\', 'b')
		case r == '\f':
			dst = append(dst, '\\', 'f')
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
