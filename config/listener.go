package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Listener is one endpoint. Name is upper case as Kafka normalises it; an
// empty Host means every interface; IPv6 hosts are without brackets. Port 0
// leaves the choice to the operating system; an advertised one then means the
// port that was bound.
type Listener struct {
	Name, Protocol, Host string
	Port                 int
}

// String is NAME://HOST:PORT.
func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Address is HOST:PORT, an IPv6 host in brackets.
func (l Listener) Address() string {
	host := l.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(l.Port)
}

// protocols lists Kafka's security protocols, and whether kbroker speaks them.
var protocols = map[string]bool{"PLAINTEXT": true, "SSL": false, "SASL_PLAINTEXT": false, "SASL_SSL": false}

var endpoint = regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$`)

// parseProtocolMap reads NAME:PROTOCOL pairs.
func (s *settings) parseProtocolMap() (map[string]string, *InvalidError) {
	const key = "listener.security.protocol.map"
	pairs, err := s.parsePairs(key)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		name, protocol := strings.ToUpper(p[0]), strings.ToUpper(p[1])
		if strings.TrimSpace(name) == "" {
			return nil, s.bad(key, "a pair has no listener name; write NAME:PROTOCOL,…")
		}
		if _, ok := protocols[protocol]; !ok {
			return nil, s.bad(key, fmt.Sprintf("%q is no security protocol; choose PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", p[1]))
		}
		out[name] = protocol
	}
	return out, nil
}

// parsePairs reads "A:B,C:D", split at each pair's last colon.
func (s *settings) parsePairs(key string) ([][2]string, *InvalidError) {
	text := s.str(key)
	if text == "" {
		return nil, nil
	}
	var out [][2]string
	for _, p := range splitList(strings.TrimRight(text, ","+javaSpace)) {
		i := strings.LastIndexByte(p, ':')
		if i < 0 {
			return nil, s.bad(key, fmt.Sprintf("%q is no pair; write A:B,C:D", p))
		}
		out = append(out, [2]string{javaTrim(p[:i]), javaTrim(p[i+1:])})
	}
	return out, nil
}

// parseListeners reads the endpoints of one key.
func (s *settings) parseListeners(key string, protocolOf map[string]string) ([]Listener, *InvalidError) {
	var out []Listener
	for _, entry := range splitCSV(s.str(key)) {
		m := endpoint.FindStringSubmatch(entry)
		if m == nil {
			return nil, s.bad(key, fmt.Sprintf("%q is no endpoint; write NAME://HOST:PORT, an IPv6 host as [::1]", entry))
		}
		l := Listener{Name: strings.ToUpper(m[1]), Host: m[2]}
		port, err := strconv.Atoi(m[3])
		if err != nil || port < 0 || port > 65535 {
			return nil, s.bad(key, fmt.Sprintf("port %s of %s is not one of 0 to 65535", m[3], entry))
		}
		l.Port = port
		if strings.TrimSpace(l.Name) == "" {
			return nil, s.bad(key, fmt.Sprintf("%q has no listener name; write NAME://HOST:PORT", entry))
		}
		if l.Protocol = protocolOf[l.Name]; l.Protocol == "" {
			return nil, s.bad(key, fmt.Sprintf("listener %s has no security protocol; add %s:PLAINTEXT to listener.security.protocol.map", l.Name, l.Name))
		}
		if strings.Contains(l.Host, ":") {
			if _, err := netip.ParseAddr(l.Host); err != nil {
				return nil, s.bad(key, fmt.Sprintf("host %s of %s is no IPv6 address", l.Host, entry))
			}
		}
		for _, other := range out {
			if other.Name == l.Name {
				return nil, s.bad(key, "two listeners are named "+l.Name+"; each needs a name of its own")
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// checkPorts refuses two listeners on one port, but for one on an IPv4 and one
// on an IPv6 address.
func (s *settings) checkPorts(listeners []Listener) *InvalidError {
	for i, a := range listeners {
		for _, b := range listeners[i+1:] {
			if a.Port != b.Port || a.Port == 0 {
				continue
			}
			ipA, errA := netip.ParseAddr(a.Host)
			ipB, errB := netip.ParseAddr(b.Host)
			if errA == nil && errB == nil && ipA.Is4() != ipB.Is4() {
				continue
			}
			return s.bad("listeners", fmt.Sprintf("%s and %s are both on port %d; give each listener a port of its own", a.Name, b.Name, a.Port))
		}
	}
	return nil
}

func hasListener(listeners []Listener, name string) bool {
	for _, l := range listeners {
		if l.Name == name {
			return true
		}
	}
	return false
}

func listenerNames(listeners []Listener) string {
	names := make([]string, len(listeners))
	for i, l := range listeners {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}

// endpoints is what the listener keys say together.
type endpoints struct {
	listeners, advertised     []Listener
	protocolOf                map[string]string
	interBroker, controlPlane string
}

func (s *settings) endpoints() (e endpoints, bad *InvalidError) {
	if e.protocolOf, bad = s.parseProtocolMap(); bad != nil {
		return e, bad
	}
	if e.listeners, bad = s.parseListeners("listeners", e.protocolOf); bad != nil {
		return e, bad
	}
	if len(e.listeners) == 0 {
		return e, s.bad("listeners", "there must be at least one; write PLAINTEXT://HOST:PORT")
	}
	if bad = s.checkPorts(e.listeners); bad != nil {
		return e, bad
	}
	for _, l := range e.listeners {
		if !protocols[l.Protocol] {
			return e, s.bad("listeners", fmt.Sprintf("listener %s wants %s, which kbroker does not speak yet; use PLAINTEXT", l.Name, l.Protocol))
		}
	}
	e.advertised = e.listeners
	if !s.isNull("advertised.listeners") {
		if e.advertised, bad = s.parseListeners("advertised.listeners", e.protocolOf); bad != nil {
			return e, bad
		}
	}
	if bad = s.checkAdvertised(e); bad != nil {
		return e, bad
	}
	if e.interBroker, bad = s.interBroker(e); bad != nil {
		return e, bad
	}
	e.controlPlane, bad = s.controlPlane(e)
	return e, bad
}

func (s *settings) checkAdvertised(e endpoints) *InvalidError {
	key := "advertised.listeners"
	if s.isNull(key) {
		key = "listeners"
	}
	if len(e.advertised) == 0 {
		return s.bad(key, "there must be at least one listener to advertise")
	}
	for _, l := range e.advertised {
		if !hasListener(e.listeners, l.Name) {
			return s.bad(key, fmt.Sprintf("%s is not among listeners, which has %s", l.Name, listenerNames(e.listeners)))
		}
		if l.Host == "0.0.0.0" {
			return s.bad(key, "clients cannot connect to 0.0.0.0; set advertised.listeners to an address that they can reach")
		}
	}
	return nil
}

// interBroker finds the listener that brokers use between them.
func (s *settings) interBroker(e endpoints) (string, *InvalidError) {
	const key, byProtocol = "inter.broker.listener.name", "security.inter.broker.protocol"
	if s.isNull(key) {
		name := s.str(byProtocol)
		if !hasListener(e.advertised, name) {
			return "", s.bad(byProtocol, fmt.Sprintf("there is no advertised listener named %s for brokers to use (there are %s); set inter.broker.listener.name to one of them", name, listenerNames(e.advertised)))
		}
		return name, nil
	}
	if s.has(byProtocol) {
		return "", s.bad(key, "security.inter.broker.protocol is set too; keep only one of the two")
	}
	name := strings.ToUpper(s.str(key))
	if !hasListener(e.advertised, name) {
		return "", s.bad(key, fmt.Sprintf("is not one of the advertised listeners, which are %s", listenerNames(e.advertised)))
	}
	return name, nil
}

func (s *settings) controlPlane(e endpoints) (string, *InvalidError) {
	const key = "control.plane.listener.name"
	if s.isNull(key) {
		return "", nil
	}
	name := strings.ToUpper(s.str(key))
	if !hasListener(e.advertised, name) {
		return "", s.bad(key, fmt.Sprintf("is not one of the advertised listeners, which are %s", listenerNames(e.advertised)))
	}
	if name == e.interBroker {
		return "", s.bad(key, "is the inter-broker listener too; give the controller a listener of its own, or unset it")
	}
	return name, nil
}
