package zkmeta

import (
	"strconv"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

// The fixed paths of a Kafka cluster. A sequential znode's path is what a
// create appends its number to.
const (
	ConsumersPath              = "/consumers"
	BrokerIDsPath              = "/brokers/ids"
	TopicsPath                 = "/brokers/topics"
	BrokerSeqIDPath            = "/brokers/seqid"
	ControllerPath             = "/controller"
	ControllerEpochPath        = "/controller_epoch"
	DeleteTopicsPath           = "/admin/delete_topics"
	ReassignPartitionsPath     = "/admin/reassign_partitions"
	PreferredElectionPath      = "/admin/preferred_replica_election"
	ConfigPath                 = "/config"
	ConfigChangesPath          = "/config/changes"
	ConfigChangeSequentialPath = "/config/changes/config_change_"
	IsrChangesPath             = "/isr_change_notification"
	IsrChangeSequentialPath    = "/isr_change_notification/isr_change_"
	LogDirEventsPath           = "/log_dir_event_notification"
	LogDirEventSequentialPath  = "/log_dir_event_notification/log_dir_event_"
	ProducerIDBlockPath        = "/latest_producer_id_block"
	ClusterIDPath              = "/cluster/id"
	FeaturePath                = "/feature"
	MigrationPath              = "/migration"
	ACLPath                    = "/kafka-acl"
	ExtendedACLPath            = "/kafka-acl-extended"
	ACLChangesPath             = "/kafka-acl-changes"
	ACLChangeSequentialPath    = "/kafka-acl-changes/acl_changes_"
	ExtACLChangesPath          = "/kafka-acl-extended-changes"
	ExtACLChangeSequentialPath = "/kafka-acl-extended-changes/acl_changes_"
	DelegationTokensPath       = "/delegation_token/tokens"
	TokenChangesPath           = "/delegation_token/token_changes"
	TokenChangeSequentialPath  = "/delegation_token/token_changes/token_change_"
)

// ConfigType is a kind of entity that has configs.
type ConfigType string

// The kinds of entities, spelled as in their paths.
const (
	TopicConfigs  ConfigType = "topics"
	ClientConfigs ConfigType = "clients"
	UserConfigs   ConfigType = "users"
	BrokerConfigs ConfigType = "brokers"
	IPConfigs     ConfigType = "ips"
)

// ConfigTypes are all kinds, in Kafka's order.
func ConfigTypes() []ConfigType {
	return []ConfigType{TopicConfigs, ClientConfigs, UserConfigs, BrokerConfigs, IPConfigs}
}

// DefaultEntity is the literal name of a kind's default entity.
const DefaultEntity = "<default>"

// BrokerPath is a broker's registration.
func BrokerPath(id cluster.BrokerID) string { return BrokerIDsPath + "/" + strconv.Itoa(int(id)) }

// TopicPath is a topic's assignment.
func TopicPath(topic string) string { return TopicsPath + "/" + topic }

// PartitionsPath is the parent of a topic's partitions.
func PartitionsPath(topic string) string { return TopicsPath + "/" + topic + "/partitions" }

// PartitionPath is the parent of a partition's state.
func PartitionPath(tp cluster.TopicPartition) string {
	return PartitionsPath(tp.Topic) + "/" + strconv.Itoa(int(tp.Partition))
}

// StatePath is a partition's state.
func StatePath(tp cluster.TopicPartition) string { return PartitionPath(tp) + "/state" }

// DeleteTopicPath asks for a topic's deletion by being there.
func DeleteTopicPath(topic string) string { return DeleteTopicsPath + "/" + topic }

// ConfigTypePath is the parent of a kind's entities.
func ConfigTypePath(t ConfigType) string { return ConfigPath + "/" + string(t) }

// ConfigEntityPath is an entity's configs. The name is as in the path: a user's
// or client's is sanitized, the default entity's is DefaultEntity.
func ConfigEntityPath(t ConfigType, name string) string { return ConfigTypePath(t) + "/" + name }

// UserClientPath is the configs of a client id under a user; both names are as
// in the path.
func UserClientPath(user, client string) string {
	return ConfigEntityPath(UserConfigs, user) + "/" + string(ClientConfigs) + "/" + client
}

// BrokerOfPath is the broker whose registration a path is.
func BrokerOfPath(path string) (cluster.BrokerID, bool) {
	name, ok := strings.CutPrefix(path, BrokerIDsPath+"/")
	if !ok {
		return cluster.NoBroker, false
	}
	return ParseBrokerID(name)
}

// ParseBrokerID reads a child's name of BrokerIDsPath. Names that Kafka never
// writes (a sign, leading zeros, too large) are refused.
func ParseBrokerID(name string) (cluster.BrokerID, bool) {
	n, ok := parseID(name)
	return cluster.BrokerID(n), ok
}

// TopicOfPath is the topic whose assignment a path is.
func TopicOfPath(path string) (string, bool) {
	name, ok := strings.CutPrefix(path, TopicsPath+"/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", false
	}
	return name, true
}

// PartitionOfPath is the partition whose state a path is.
func PartitionOfPath(path string) (cluster.TopicPartition, bool) {
	rest, ok := strings.CutPrefix(path, TopicsPath+"/")
	if !ok {
		return cluster.TopicPartition{}, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 || parts[1] != "partitions" || parts[3] != "state" {
		return cluster.TopicPartition{}, false
	}
	n, ok := parseID(parts[2])
	return cluster.TopicPartition{Topic: parts[0], Partition: n}, ok
}

// parseID reads a decimal that Kafka would have written: 0 to 2^31-1, no sign,
// no leading zero.
func parseID(s string) (int32, bool) {
	if s == "" || len(s) > 10 || s[0] == '0' && len(s) > 1 || s[0] < '0' || s[0] > '9' {
		return -1, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return -1, false
	}
	return int32(n), true
}

// Sequence is the number at the end of a sequential znode's name. All of
// Kafka's prefixes end in an underscore.
func Sequence(name string) (int64, bool) {
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '_')+1:], 10, 64)
	return n, err == nil
}

// Parents are the ancestors of a path from the top, without the root and the
// path itself.
func Parents(path string) []string {
	var up []string
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			up = append(up, path[:i])
		}
	}
	return up
}

// PersistentPaths are the znodes that every broker creates at start when they
// are absent, in the order of creation; the parents in between come with them.
func PersistentPaths() []string {
	paths := []string{ConsumersPath, BrokerIDsPath, TopicsPath, ConfigChangesPath, DeleteTopicsPath,
		BrokerSeqIDPath, IsrChangesPath, ProducerIDBlockPath, LogDirEventsPath}
	for _, t := range ConfigTypes() {
		paths = append(paths, ConfigTypePath(t))
	}
	return paths
}
