package config

// Keys of kbroker's own.
var ownKeys = []row{
	{"kbroker.http.listener", String, "", nil, ReadOnly, Low, 0, "HOST:PORT for health, metrics and the console, an empty host being loopback; none when empty."},
	{"kbroker.controller.eligible", Boolean, "true", nil, ReadOnly, Low, acts, "Whether this broker may become the controller."},
	{"kbroker.zookeeper.fencing", String, "auto", oneOf("auto", "off"), ReadOnly, Low, acts, "Stops serving as leader when the ZooKeeper session may have ended: auto, or off as in Kafka."},
	{"kbroker.max.open.files", Int, "0", atLeast(0), ReadOnly, Low, acts, "Log files held open at a time; 0 takes a share of the process's limit."},
}
