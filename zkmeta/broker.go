package zkmeta

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

// Endpoint is where a broker listens, as clients reach it.
type Endpoint struct {
	Listener string // the listener's name, upper case
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	Host     string
	Port     int32
}

// String is the form in a registration: LISTENER://HOST:PORT.
func (e Endpoint) String() string {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return e.Listener + "://" + host + ":" + strconv.Itoa(int(e.Port))
}

// SupportedVersions is the range of a feature that a broker supports.
type SupportedVersions struct{ Min, Max int16 }

// BrokerRegistration is what /brokers/ids/N says. The broker's epoch is that
// znode's Czxid.
type BrokerRegistration struct {
	// Host and Port repeat the first PLAINTEXT endpoint for old clients; ""
	// and -1 when there is none.
	Host      string
	Port      int32
	Endpoints []Endpoint
	Rack      string // "" = none
	Features  map[string]SupportedVersions
	JMXPort   int32
	Version   int   // of the format; 5 from inter.broker.protocol.version 2.7 on
	Timestamp int64 // ms of the registration
	Extra     map[string]json.RawMessage
}

// NewBrokerRegistration is a registration in Kafka 3.9's format.
func NewBrokerRegistration(endpoints []Endpoint, rack string, nowMs int64) BrokerRegistration {
	b := BrokerRegistration{Port: -1, Endpoints: endpoints, Rack: rack, JMXPort: -1, Version: 5, Timestamp: nowMs}
	for _, e := range endpoints {
		if e.Protocol == "PLAINTEXT" {
			b.Host, b.Port = e.Host, e.Port
			break
		}
	}
	return b
}

// kbrokerKey is kbroker's own in a registration; Kafka 3.9 passes over it.
const kbrokerKey = "kbroker"

// MarkKbroker notes in a registration that the broker is a kbroker.
func (b *BrokerRegistration) MarkKbroker() { b.mark(`{"version":1}`) }

// Kbroker reports whether the registration is that of a kbroker, of this version
// or a later one.
func (b BrokerRegistration) Kbroker() bool {
	var key struct {
		Version int `json:"version"`
	}
	return json.Unmarshal(b.Extra[kbrokerKey], &key) == nil && key.Version > 0
}

func (b *BrokerRegistration) mark(key string) {
	b.Extra = maps.Clone(b.Extra)
	if b.Extra == nil {
		b.Extra = map[string]json.RawMessage{}
	}
	b.Extra[kbrokerKey] = json.RawMessage(key)
}

// MarkUncleanRestart notes in a registration that the broker's process started
// without the mark of a clean shutdown in each of its log directories: what it had
// not synced may be lost. A registration anew within the same process, after its
// session had ended, is none. It is a kbroker's mark, too.
func (b *BrokerRegistration) MarkUncleanRestart() { b.mark(`{"version":1,"unclean_restart":true}`) }

// UncleanRestart reports whether the registration says so. A key of a later
// version, or one that cannot be understood, says nothing: a broker must not be
// taken for dead because of it.
func (b BrokerRegistration) UncleanRestart() bool {
	var key struct {
		Version        int  `json:"version"`
		UncleanRestart bool `json:"unclean_restart"`
	}
	return json.Unmarshal(b.Extra[kbrokerKey], &key) == nil && key.Version == 1 && key.UncleanRestart
}

// Endpoint is the endpoint of a listener.
func (b BrokerRegistration) Endpoint(listener string) (Endpoint, bool) {
	i := slices.IndexFunc(b.Endpoints, func(e Endpoint) bool { return e.Listener == listener })
	if i < 0 {
		return Endpoint{}, false
	}
	return b.Endpoints[i], true
}

// Encode writes the znode's data.
func (b BrokerRegistration) Encode() []byte {
	return encodeObject(func(w *builder) {
		if b.Version >= 5 {
			w.object("features", func() {
				for _, name := range slices.Sorted(maps.Keys(b.Features)) {
					w.object(name, func() {
						w.integer("min_version", int64(b.Features[name].Min))
						w.integer("max_version", int64(b.Features[name].Max))
					})
				}
			})
		}
		if b.Version >= 4 {
			w.object("listener_security_protocol_map", func() {
				for _, e := range b.Endpoints {
					w.text(e.Listener, e.Protocol)
				}
			})
		}
		if b.Version >= 2 {
			w.list("endpoints", func() {
				for _, e := range b.Endpoints {
					w.textElement(e.String())
				}
			})
		}
		w.integer("jmx_port", int64(b.JMXPort))
		w.integer("port", int64(b.Port))
		if b.Host == "" {
			w.null("host")
		} else {
			w.text("host", b.Host)
		}
		if b.Rack != "" && b.Version >= 3 {
			w.text("rack", b.Rack)
		}
		w.integer("version", int64(b.Version))
		w.text("timestamp", strconv.FormatInt(b.Timestamp, 10))
		for _, name := range slices.Sorted(maps.Keys(b.Extra)) {
			w.raw(name, b.Extra[name])
		}
	})
}

// DecodeBroker reads the registration of a broker, in the formats 1 to 5.
func DecodeBroker(id cluster.BrokerID, data []byte) (BrokerRegistration, error) {
	b := BrokerRegistration{}
	err := decodeObject(BrokerPath(id), data, func(o object) {
		b.Version = int(o.version(1, 5, false))
		b.JMXPort = int32(o.integer("jmx_port", math.MinInt32, math.MaxInt32))
		b.Host = o.textOr("host", "")
		b.Port = int32(o.integerOr("port", -1, 65535, -1))
		b.Rack = o.textOr("rack", "")
		b.Timestamp = o.timestamp("timestamp")
		b.Features = o.supportedFeatures()
		b.Endpoints = o.endpoints(b)
		b.Extra = o.extra("version", "jmx_port", "host", "port", "rack", "timestamp", "features", "endpoints", "listener_security_protocol_map")
	})
	return b, err
}

// timestamp is a time that Kafka writes as a string and never reads.
func (o object) timestamp(name string) int64 {
	v, _ := o.raw(name)
	n, err := strconv.ParseInt(strings.Trim(string(v), `"`), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (o object) supportedFeatures() map[string]SupportedVersions {
	in, ok := o.object("features")
	if !ok || len(in.fields) == 0 {
		return nil
	}
	features := make(map[string]SupportedVersions, len(in.fields))
	for _, name := range in.names() {
		f, ok := in.asObject(name, in.fields[name])
		if !ok {
			return nil
		}
		features[name] = SupportedVersions{
			Min: int16(f.integer("min_version", 0, math.MaxInt16)),
			Max: int16(f.integer("max_version", 0, math.MaxInt16)),
		}
	}
	return features
}

var securityProtocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// endpoints reads where the broker listens: before format 2 it is the host and
// port, before format 4 the listener's name is the protocol.
func (o object) endpoints(b BrokerRegistration) []Endpoint {
	if *o.err != nil {
		return nil
	}
	if b.Version == 1 {
		if b.Host == "" {
			o.fail("%q is missing", "host")
		}
		return []Endpoint{{"PLAINTEXT", "PLAINTEXT", o.text("host"), int32(o.integer("port", 0, 65535))}}
	}
	protocols := make(map[string]string, 4)
	if in, ok := o.object("listener_security_protocol_map"); ok {
		for _, name := range in.names() {
			protocols[strings.ToUpper(name)] = strings.ToUpper(in.text(name))
		}
	} else {
		for _, p := range securityProtocols {
			protocols[p] = p
		}
	}
	var endpoints []Endpoint
	for _, v := range o.list("endpoints") {
		e, err := parseEndpoint(o.asText("endpoints", v))
		if err == nil {
			e.Protocol = protocols[e.Listener]
			err = checkEndpoint(e, endpoints)
		}
		if err != nil {
			o.fail("%q: %w", "endpoints", err)
			return nil
		}
		endpoints = append(endpoints, e)
	}
	return endpoints
}

func parseEndpoint(s string) (Endpoint, error) {
	bad := fmt.Errorf("%q is not LISTENER://HOST:PORT", clip(s))
	name, address, ok := strings.Cut(s, "://")
	i := strings.LastIndexByte(address, ':')
	if !ok || name == "" || i < 0 {
		return Endpoint{}, bad
	}
	port, err := strconv.ParseUint(address[i+1:], 10, 16)
	if err != nil {
		return Endpoint{}, bad
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address[:i], "["), "]")
	if strings.ContainsAny(host, "/[] ,") {
		return Endpoint{}, bad
	}
	return Endpoint{Listener: strings.ToUpper(name), Host: host, Port: int32(port)}, nil
}

func checkEndpoint(e Endpoint, before []Endpoint) error {
	if !slices.Contains(securityProtocols, e.Protocol) {
		return fmt.Errorf("listener %s has no known security protocol", clip(e.Listener))
	}
	if slices.ContainsFunc(before, func(o Endpoint) bool { return o.Listener == e.Listener }) {
		return fmt.Errorf("listener %s is there twice", clip(e.Listener))
	}
	return nil
}
