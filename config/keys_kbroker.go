package config

import (
	"fmt"
	"net"
	"strconv"
)

// Keys of kbroker's own.
var ownKeys = []row{
	{"kbroker.http.listener", String, "", hostPort(), ReadOnly, Low, acts, "HOST:PORT for health, metrics and the console, an empty host being loopback; none when empty."},
	{"kbroker.controller.eligible", Boolean, "true", nil, ReadOnly, Low, acts, "Whether this broker may become the controller."},
	{"kbroker.zookeeper.fencing", String, "auto", oneOf("auto", "off"), ReadOnly, Low, acts, "Stops serving as leader when the ZooKeeper session may have ended: auto, or off as in Kafka."},
	{"kbroker.dead.broker.detection", String, "auto", oneOf("auto", "off"), ReadOnly, Low, acts, "Takes a kbroker out of ZooKeeper whose process has gone (its endpoint refuses connections) instead of waiting until its session ends: auto, or off as in Kafka."},
	{"kbroker.zookeeper.digest", Password, null, nil, ReadOnly, Low, acts, "USER:PASSWORD to present to ZooKeeper by its digest scheme; znodes made with zookeeper.set.acl belong to that user."},
	{"kbroker.max.open.files", Int, "0", atLeast(0), ReadOnly, Low, acts, "Log files held open at a time; 0 takes a share of the process's limit."},
}

// hostPort allows an address to listen on, or nothing.
func hostPort() *check {
	return &check{"HOST:PORT, :PORT or empty", func(_ Type, v value) (string, string) {
		if v.s == "" {
			return "", ""
		}
		_, port, err := net.SplitHostPort(v.s)
		n, bad := strconv.Atoi(port)
		if err != nil || bad != nil || n < 0 || n > 65535 {
			return v.s, fmt.Sprintf("%q is no HOST:PORT; write localhost:8080, :8080 for loopback, 0.0.0.0:8080 for every interface, an IPv6 host as [::1]:8080", v.s)
		}
		return "", ""
	}}
}
