package api

import (
	"regexp"

	"github.com/kbroker/kbroker/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions (18).
//
//	v0  keys and ranges
//	v1  throttle time
//	v3  flexible; client software name and version (KIP-511)
//	v4  a supported feature may have the minimum version 0
//
// A version that is not known is answered with UNSUPPORTED_VERSION in the shape
// of v0 and the range of this API, so that the client can come back.
func init() { register(API{Key: protocol.ApiVersions, Handle: apiVersions}) }

// software is what Kafka accepts as a client's name or version.
var software = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func apiVersions(h *Handlers, c *Call) {
	req := c.Msg.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if c.Header.UnknownAPIVersions() {
		resp.ErrorCode = int16(protocol.ErrUnsupportedVersion)
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{apiKey(protocol.ApiVersions)}
		c.Reply(resp)
		return
	}
	if c.Version() >= 3 {
		if !software.MatchString(req.ClientSoftwareName) || !software.MatchString(req.ClientSoftwareVersion) {
			resp.ErrorCode = int16(protocol.ErrInvalidRequest)
			c.Reply(resp)
			return
		}
		c.Conn.SetClientSoftware(req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	consumers := h.consumerProtocol()
	for _, a := range Registered() {
		k := apiKey(a.Key)
		if !consumers && (a.Key == protocol.ConsumerGroupHeartbeat || a.Key == protocol.ConsumerGroupDescribe) {
			k.MaxVersion = 0 // as 3.9.2 advertises what it does not serve
		}
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	resp.FinalizedFeaturesEpoch = h.FeaturesEpoch()
	c.Reply(resp)
}

func apiKey(key int16) kmsg.ApiVersionsResponseApiKey {
	row, _ := protocol.LookupAPI(key)
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = key, row.Min, row.Max
	return k
}
