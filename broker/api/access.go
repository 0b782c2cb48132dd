package api

import (
	"net/netip"
	"time"
)

// Operation is what a request wants to do to a resource: Kafka's AclOperation,
// with its wire number.
type Operation int8

// The operations.
const (
	OpAll             Operation = 2
	OpRead            Operation = 3
	OpWrite           Operation = 4
	OpCreate          Operation = 5
	OpDelete          Operation = 6
	OpAlter           Operation = 7
	OpDescribe        Operation = 8
	OpClusterAction   Operation = 9
	OpDescribeConfigs Operation = 10
	OpAlterConfigs    Operation = 11
	OpIdempotentWrite Operation = 12
)

// ResourceType is Kafka's ResourceType, with its wire number.
type ResourceType int8

// The resource types.
const (
	ResTopic           ResourceType = 2
	ResGroup           ResourceType = 3
	ResCluster         ResourceType = 4
	ResTransactionalID ResourceType = 5
)

// ClusterName is the one resource of type ResCluster.
const ClusterName = "kafka-cluster"

// Caller is who sent a request, and how.
type Caller struct {
	Principal string
	Addr      netip.Addr
	Listener  string
	Protocol  string
	ClientID  string
}

// Authorizer decides what a caller may do.
type Authorizer interface {
	Allowed(who Caller, op Operation, kind ResourceType, name string) bool
}

// AllowAll is the authorizer of a broker without authorizer.class.name.
type AllowAll struct{}

// Allowed is true.
func (AllowAll) Allowed(Caller, Operation, ResourceType, string) bool { return true }

// QuotaKind is what a quota counts.
type QuotaKind uint8

// The kinds: bytes produced, bytes fetched, time spent on requests,
// partitions created or deleted.
const (
	QuotaProduce QuotaKind = iota
	QuotaFetch
	QuotaRequest
	QuotaControllerMutation
)

// Quota counts what callers use.
type Quota interface {
	// Use counts amount (bytes, nanoseconds or partitions) at the time now and
	// answers for how long the caller is to be throttled, 0 for not at all.
	Use(now time.Time, who Caller, kind QuotaKind, amount float64) time.Duration
}

// NoQuota never throttles.
type NoQuota struct{}

// Use answers 0.
func (NoQuota) Use(time.Time, Caller, QuotaKind, float64) time.Duration { return 0 }
