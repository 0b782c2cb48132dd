package zkmeta

import (
	"fmt"
	"math"
	"strconv"

	"github.com/kbroker/kbroker/cluster"
)

// NoKRaftController is the epoch of a controller that is not a KRaft one.
const NoKRaftController = -1

// Controller is what /controller says.
type Controller struct {
	BrokerID             cluster.BrokerID
	Timestamp            int64 // ms
	KRaftControllerEpoch int32 // NoKRaftController, or the epoch of the KRaft controller that migrates the cluster
}

// Encode writes the znode's data.
func (c Controller) Encode() []byte {
	return encodeObject(func(b *builder) {
		b.integer("version", 2)
		b.integer("brokerid", int64(c.BrokerID))
		b.text("timestamp", strconv.FormatInt(c.Timestamp, 10))
		b.integer("kraftControllerEpoch", int64(c.KRaftControllerEpoch))
	})
}

// DecodeController reads who the controller is, in the formats 1 and 2.
func DecodeController(data []byte) (Controller, error) {
	var c Controller
	err := decodeObject(ControllerPath, data, func(o object) {
		o.version(1, 2, true)
		c.BrokerID = cluster.BrokerID(o.integer("brokerid", math.MinInt32, math.MaxInt32))
		c.Timestamp = o.timestamp("timestamp")
		c.KRaftControllerEpoch = int32(o.integerOr("kraftControllerEpoch", math.MinInt32, math.MaxInt32, NoKRaftController))
	})
	return c, err
}

// The controller epoch that the first broker of a cluster writes, with which
// no controller ever acts.
const InitialControllerEpoch cluster.ControllerEpoch = 0

// EncodeControllerEpoch writes the data of /controller_epoch: plain text.
func EncodeControllerEpoch(e cluster.ControllerEpoch) []byte {
	return strconv.AppendInt(nil, int64(e), 10)
}

// DecodeControllerEpoch reads the data of /controller_epoch.
func DecodeControllerEpoch(data []byte) (cluster.ControllerEpoch, error) {
	n, err := parseInt(data, 0, math.MaxInt32)
	if err != nil { // no JSON around it shows where an empty or blank value begins and ends
		err = fmt.Errorf("%q is not a number from 0 to %d", clip(string(data)), math.MaxInt32)
	}
	return cluster.ControllerEpoch(n), badZnode(ControllerEpochPath, err)
}
