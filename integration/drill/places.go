package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// place is where a process lives: a network namespace of its own with an
// address on the drill's bridge, or the machine's loopback.
type place struct {
	namespace string // "" for none
	host      string
}

// command wraps argv so that it runs there.
func (p place) command(argv ...string) []string {
	if p.namespace == "" {
		return argv
	}
	return append([]string{"nsenter", "--net=/run/netns/" + p.namespace}, argv...)
}

// port is one that is free there: the usual one in a namespace of its own.
func (p place) port(usual int) (int, error) {
	if p.namespace != "" {
		return usual, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(p.host, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// drop has the place lose what comes from another one.
func (p place) drop(from place) error { return p.iptables("-A", from) }

// take ends drop.
func (p place) take(from place) error { return p.iptables("-D", from) }

func (p place) iptables(verb string, from place) error {
	return command(p.command("iptables", "-w", verb, "INPUT", "-s", from.host, "-j", "DROP")...)
}

// takeAll forgets every cut of the place.
func (p place) takeAll() error {
	if p.namespace == "" {
		return nil
	}
	return command(p.command("iptables", "-w", "-F", "INPUT")...)
}

// insideVariable tells the program that it has been started again in network and
// mount namespaces of its own, and "-" that these are not to be had.
const insideVariable = "KBROKER_DRILL_INSIDE"

// isolation is why there can be no namespaces, "" when there can.
func isolation() string {
	if os.Getuid() != 0 {
		return "not root: no network namespaces and no mounts"
	}
	for _, tool := range []string{"ip", "iptables", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool + " is missing: no network namespaces"
		}
	}
	return ""
}

func isolated() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
}

// layPlaces makes the namespaces, their links and the bridge. All of it belongs
// to this process's own namespaces and goes with it.
func layPlaces(names ...string) (map[string]place, error) {
	run := func(line string) error { return command(strings.Fields(line)...) }
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return nil, err
	}
	for _, line := range []string{
		"mount -t tmpfs drill /run/netns", "ip link set lo up",
		"ip link add hub type bridge", "ip addr add 10.77.0.254/24 dev hub", "ip link set hub up",
	} {
		if err := run(line); err != nil {
			return nil, err
		}
	}
	places := map[string]place{}
	for i, name := range names {
		host := fmt.Sprintf("10.77.0.%d", i+1)
		for _, line := range []string{
			"ip netns add " + name, "ip link add to-" + name + " type veth peer name eth0 netns " + name,
			"ip link set to-" + name + " master hub up", "ip -n " + name + " link set lo up",
			"ip -n " + name + " addr add " + host + "/24 dev eth0", "ip -n " + name + " link set eth0 up",
		} {
			if err := run(line); err != nil {
				return nil, err
			}
		}
		places[name] = place{name, host}
	}
	return places, nil
}

// hub is where the drill itself and its clients are.
var hub = place{host: "10.77.0.254"}

// loopback are the places when there are no namespaces.
func loopback(names ...string) map[string]place {
	places := map[string]place{}
	for _, name := range names {
		places[name] = place{host: "127.0.0.1"}
	}
	return places
}
