package zkmeta

import "strings"

// Perm is a set of permissions on a znode, in ZooKeeper's bits.
type Perm int32

// The permissions.
const (
	PermRead   Perm = 1
	PermWrite  Perm = 2
	PermCreate Perm = 4
	PermDelete Perm = 8
	PermAdmin  Perm = 16
	PermAll    Perm = 31
)

// ACLEntry grants permissions to an identity.
type ACLEntry struct {
	Perms  Perm
	Scheme string
	ID     string
}

// ACL is a znode's access list; nil stands for the store's default for the
// path.
type ACL []ACLEntry

// DefaultACL is the access list that Kafka gives a znode: open without
// zookeeper.set.acl and for the old consumers' root; else all for the creator
// and, unless the path holds secrets, reading for everybody.
func DefaultACL(secure bool, path string) ACL {
	if !secure || path == ConsumersPath {
		return ACL{{PermAll, "world", "anyone"}}
	}
	acl := ACL{{PermAll, "auth", ""}}
	if !Sensitive(path) {
		acl = append(acl, ACLEntry{PermRead, "world", "anyone"})
	}
	return acl
}

// Sensitive reports whether a path holds secrets: SCRAM verifiers, broker
// passwords, delegation tokens.
func Sensitive(path string) bool {
	for _, root := range []string{ConfigTypePath(UserConfigs), ConfigTypePath(BrokerConfigs), DelegationTokensPath} {
		if strings.HasPrefix(path, root) {
			return true
		}
	}
	return false
}
