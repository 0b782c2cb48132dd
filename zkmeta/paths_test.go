package zkmeta

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kbroker/kbroker/cluster"
)

func TestPaths(t *testing.T) {
	tp := cluster.TopicPartition{Topic: "a.b", Partition: 12}
	for got, want := range map[string]string{
		BrokerPath(7):                            "/brokers/ids/7",
		TopicPath("t"):                           "/brokers/topics/t",
		PartitionsPath("t"):                      "/brokers/topics/t/partitions",
		PartitionPath(tp):                        "/brokers/topics/a.b/partitions/12",
		StatePath(tp):                            "/brokers/topics/a.b/partitions/12/state",
		DeleteTopicPath("t"):                     "/admin/delete_topics/t",
		ConfigEntityPath(TopicConfigs, "t"):      "/config/topics/t",
		ConfigEntityPath(IPConfigs, "<default>"): "/config/ips/<default>",
		UserClientPath("u", "c"):                 "/config/users/u/clients/c",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if err := ValidatePath(got, false); err != nil {
			t.Error(err)
		}
	}
	if got, ok := PartitionOfPath(StatePath(tp)); got != tp || !ok {
		t.Error(got, ok)
	}
	if id, ok := BrokerOfPath("/brokers/ids/2147483647"); id != 2147483647 || !ok {
		t.Error(id, ok)
	}
	if topic, ok := TopicOfPath("/brokers/topics/t"); topic != "t" || !ok {
		t.Error(topic, ok)
	}
	for _, path := range []string{"/", "", "/brokers/ids", "/brokers/ids/", "/brokers/ids/-1", "/brokers/ids/01", "/brokers/ids/2147483648", "/brokers/ids/1/x",
		"/brokers/topics", "/brokers/topics/", "/brokers/topics/t/partitions/x/state", "/brokers/topics/t/partitions/0", "/brokers/topics/t/p/0/state",
		"/brokers/topics/t/partitions/0/state/x", "/brokers/ids/+1"} {
		_, broker := BrokerOfPath(path)
		_, partition := PartitionOfPath(path)
		_, topic := TopicOfPath(path)
		if broker || partition || topic {
			t.Errorf("%q is taken for something", path)
		}
	}
	if got := Parents("/a/b/c"); !slices.Equal(got, []string{"/a", "/a/b"}) || Parents("/a") != nil || Parents("/") != nil {
		t.Error(got)
	}
	for path, want := range map[string]string{"/a": "/", "/a/b": "/a"} {
		if got, ok := Parent(path); got != want || !ok {
			t.Error(path, got, ok)
		}
	}
	if _, ok := Parent("/"); ok {
		t.Error("the root has a parent")
	}
	for name, want := range map[string]int64{"config_change_0000000012": 12, "isr_change_2147483648": 2147483648, "x_-2147483648": -2147483648, "0000000003": 3} {
		if got, ok := Sequence(name); got != want || !ok {
			t.Error(name, got, ok)
		}
	}
	for _, name := range []string{"", "x_", "config_change_x", "7x"} {
		if got, ok := Sequence(name); ok {
			t.Error(name, got)
		}
	}
}

func TestValidatePath(t *testing.T) {
	for _, good := range []string{"/", "/a", "/a/b.c", "/a/..b", "/é", "/<default>", "/%2F"} {
		if err := ValidatePath(good, false); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/../a", "/a\x00", "/a\x1f", "/a\u009f", "/\ue000", "/\ufff0"} {
		if err := ValidatePath(bad, false); !errors.Is(err, ErrInvalidPath) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if ValidatePath("/a/", true) != nil || ValidatePath("/", true) != nil || ValidatePath("/a//", true) == nil || ValidatePath("/a/.", true) != nil {
		t.Error("sequential paths")
	}
	if err := ValidatePath("/"+strings.Repeat("x\x00", 1000), false); len(err.Error()) > 1000 {
		t.Error("a long path floods the log")
	}
}

func TestDefaultACL(t *testing.T) {
	open := ACL{{PermAll, "world", "anyone"}}
	creator := ACL{{PermAll, "auth", ""}}
	readable := append(slices.Clone(creator), ACLEntry{PermRead, "world", "anyone"})
	for path, want := range map[string]ACL{
		"/consumers": open, "/brokers/ids": readable, "/config/users": creator, "/config/users/a": creator, "/config/brokers/1": creator,
		"/delegation_token/tokens/x": creator, "/delegation_token/token_changes": readable, "/config/topics/t": readable, "/consumers/x": readable,
	} {
		if got := DefaultACL(true, path); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
		if got := DefaultACL(false, path); !slices.Equal(got, open) {
			t.Errorf("%s: %v, want %v", path, got, open)
		}
	}
}

func TestBrokerIDFromSeqID(t *testing.T) {
	if id, err := BrokerIDFromSeqID(1, 1000); id != 1001 || err != nil {
		t.Error(id, err)
	}
	for _, v := range []cluster.ZKVersion{0, -1, 2147483647} {
		if _, err := BrokerIDFromSeqID(v, 1000); err == nil {
			t.Error(v)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	op := Set("/a", []byte("secret"), 3)
	err := error(&MultiError{1, op, ErrBadVersion})
	if err.Error() != "set /a at version 3: znode version differs" || !errors.Is(err, ErrBadVersion) {
		t.Error(err)
	}
	for _, op := range []Op{Create("/a", []byte("secret"), Ephemeral, nil), Delete("/a", 1), Check("/a", 1), {}} {
		if s := op.String(); s == "" || strings.Contains(s, "secret") {
			t.Error(s)
		}
	}
	if SessionStarted.String() != "session started" || EventType(99).String() != "invalid" || !Connected.OfSession() || Created.OfSession() {
		t.Error("names of event types")
	}
}
