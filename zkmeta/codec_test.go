package zkmeta

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kbroker/kbroker/cluster"
)

// TestBrokerFormats: every format that a broker of the 2010s may have left.
func TestBrokerFormats(t *testing.T) {
	plain := Endpoint{"PLAINTEXT", "PLAINTEXT", "localhost", 9092}
	for _, c := range []struct {
		data string
		want BrokerRegistration
	}{
		{`{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}`,
			BrokerRegistration{Host: "localhost", Port: 9092, Endpoints: []Endpoint{plain}, JMXPort: 9999, Version: 1, Timestamp: 2233345666}},
		{`{"version":2,"host":"localhost","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://localhost:9092","SSL://h2:9093"]}`,
			BrokerRegistration{Host: "localhost", Port: 9092, Endpoints: []Endpoint{plain, {"SSL", "SSL", "h2", 9093}}, JMXPort: -1, Version: 2, Timestamp: 1}},
		{`{"version":3,"host":null,"port":-1,"jmx_port":-1,"timestamp":1,"endpoints":["SSL://[::1]:9093"],"rack":"dc1"}`,
			BrokerRegistration{Port: -1, Endpoints: []Endpoint{{"SSL", "SSL", "::1", 9093}}, JMXPort: -1, Version: 3, Rack: "dc1", Timestamp: 1}},
		{`{"version":4,"jmx_port":-1,"endpoints":["client://h:1","REPLICATION://h:2"],"listener_security_protocol_map":{"client":"ssl","REPLICATION":"SASL_SSL"},"rack":null}`,
			BrokerRegistration{Port: -1, Endpoints: []Endpoint{{"CLIENT", "SSL", "h", 1}, {"REPLICATION", "SASL_SSL", "h", 2}}, JMXPort: -1, Version: 4}},
		{`{"version":5,"host":"localhost","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://localhost:9092"],` +
			`"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{"f":{"min_version":1,"max_version":3}},"tags":{"a":[1, 2]},"weight":0.50}`,
			BrokerRegistration{Host: "localhost", Port: 9092, Endpoints: []Endpoint{plain}, JMXPort: -1, Version: 5, Timestamp: 1,
				Features: map[string]SupportedVersions{"f": {1, 3}},
				Extra:    map[string]json.RawMessage{"tags": json.RawMessage(`{"a":[1, 2]}`), "weight": json.RawMessage("0.50")}}},
	} {
		got, err := DecodeBroker(1, []byte(c.data))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s (%v): %s", c.data, err, diff)
		}
		again, err := DecodeBroker(1, got.Encode())
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("%s, written again as %s (%v): %s", c.data, got.Encode(), err, diff)
		}
	}
	b := NewBrokerRegistration([]Endpoint{{"INTERNAL", "SSL", "fe80::1", 1}, {"EXTERNAL", "PLAINTEXT", "h", 2}, {"OTHER", "PLAINTEXT", "x", 3}}, "r", 7)
	if b.Host != "h" || b.Port != 2 {
		t.Errorf("the first PLAINTEXT endpoint is not %s:%d", b.Host, b.Port)
	}
	if e, ok := b.Endpoint("INTERNAL"); !ok || e.Port != 1 || !strings.Contains(string(b.Encode()), `"INTERNAL://[fe80::1]:1"`) {
		t.Errorf("%+v in %s", e, b.Encode())
	}
	if _, ok := b.Endpoint("NONE"); ok {
		t.Error("an endpoint that is not there")
	}
	if got := string(NewBrokerRegistration(nil, "", 0).Encode()); !strings.Contains(got, `"port":-1,"host":null`) || strings.Contains(got, "rack") {
		t.Errorf("without endpoints: %s", got)
	}
}

func TestTopicFormats(t *testing.T) {
	want := TopicAssignment{Partitions: map[int32]cluster.Assignment{
		0:  {Replicas: []cluster.BrokerID{1, 2, 3}, Adding: []cluster.BrokerID{3}, Removing: []cluster.BrokerID{1}},
		10: {Replicas: []cluster.BrokerID{2}},
		9:  {Replicas: []cluster.BrokerID{}},
	}}
	got, err := DecodeTopic("t", []byte(`{"version":2,"partitions":{"0":[1,2,3],"10":[2],"9":[]},"adding_replicas":{"0":[3],"77":[1]},"removing_replicas":{"0":[1]},"x":1} trailing`))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(%v) %s", err, diff)
	}
	got.ID, _ = cluster.ParseTopicID("yZh5BCwLTyeOAN3DxwKGLA")
	text := `{"partitions":{"0":[1,2,3],"9":[],"10":[2]},"topic_id":"yZh5BCwLTyeOAN3DxwKGLA","adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}`
	if string(got.Encode()) != text {
		t.Errorf("written as %s", got.Encode())
	}
	for _, old := range []string{`{"version":1,"partitions":{"0":[5]}}`, `{"partitions":{"0":[5]},"topic_id":null}`} {
		got, err := DecodeTopic("t", []byte(old))
		if err != nil || len(got.Partitions) != 1 || !got.ID.IsZero() {
			t.Errorf("%s: %+v, %v", old, got, err)
		}
	}
}

func TestStateRecovery(t *testing.T) {
	s := cluster.LeaderAndISR{Leader: cluster.NoBroker, LeaderEpoch: math.MaxInt32, ISR: []cluster.BrokerID{}, Recovery: cluster.Recovering, ControllerEpoch: 9, ZKVersion: 3}
	text := `{"controller_epoch":9,"leader":-1,"version":1,"leader_epoch":2147483647,"isr":[],"leader_recovery_state":1}`
	if got := string(EncodeState(s)); got != text {
		t.Errorf("written as %s", got)
	}
	got, err := DecodeState(cluster.TopicPartition{Topic: "t"}, []byte(text), 3)
	if err != nil || !got.Equal(s) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestStateHistory(t *testing.T) {
	tp := cluster.TopicPartition{Topic: "t"}
	s := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 2, ISR: []cluster.BrokerID{1, 2}, ControllerEpoch: 9, ZKVersion: 3,
		History: &cluster.ISRHistory{Joined: []cluster.BrokerEpoch{10, cluster.NoBrokerEpoch}, Left: [][]cluster.BrokerID{{4}, {3, 5}}, Moving: true}}
	text := `{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":2,"isr":[1,2],"kbroker":{"version":1,"joined":[10,-1],"left":[[4],[3,5]],"moving":true}}`
	if got := string(EncodeState(s)); got != text {
		t.Errorf("written as %s", got)
	}
	if got, err := DecodeState(tp, []byte(text), 3); err != nil || !got.Equal(s) {
		t.Errorf("%+v, %v", got, err)
	}
	kafkas := `{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":2,"isr":[1,2]%s}`
	for _, bad := range []string{
		`,"kbroker":{"version":1,"joined":[1,2],"moving":1}`,
		`,"kbroker":{"version":2,"joined":[1,2]}`, `,"kbroker":{"joined":[1,2]}`, `,"kbroker":[]`, `,"kbroker":{"version":1}`,
		`,"kbroker":{"version":1,"joined":[1]}`, `,"kbroker":{"version":1,"joined":[1,-3]}`, `,"kbroker":{"version":1,"joined":[1,2],"left":[[3],[3]]}`,
		`,"kbroker":{"version":1,"joined":[1,2],"left":[[2]]}`, `,"kbroker":{"version":1,"joined":[1,2],"left":3}`, `,"kbroker":{"version":1,"joined":[1,2],"left":[3]}`,
	} {
		if got, err := DecodeState(tp, fmt.Appendf(nil, kafkas, bad), 3); !errors.Is(err, ErrBadZnode) {
			t.Errorf("%s: %+v, %v", bad, got, err)
		}
	}
	for _, none := range []string{"", `,"kbroker":null`, `,"somebody's":{"version":7}`} {
		if got, err := DecodeState(tp, fmt.Appendf(nil, kafkas, none), 3); err != nil || got.History != nil {
			t.Errorf("%s: %+v, %v", none, got, err)
		}
	}
}

func TestKbrokerMark(t *testing.T) {
	b := NewBrokerRegistration([]Endpoint{{"PLAINTEXT", "PLAINTEXT", "h", 9092}}, "", 1)
	if b.Kbroker() {
		t.Error("a kbroker from the start")
	}
	b.MarkKbroker()
	got, err := DecodeBroker(1, b.Encode())
	if err != nil || !got.Kbroker() || got.UncleanRestart() || !strings.Contains(string(b.Encode()), `"kbroker":{"version":1}`) {
		t.Errorf("%s: %+v, %v", b.Encode(), got, err)
	}
	b.MarkUncleanRestart()
	if got, err := DecodeBroker(1, b.Encode()); err != nil || !got.Kbroker() || !got.UncleanRestart() {
		t.Errorf("%s: %+v, %v", b.Encode(), got, err)
	}
	for other, want := range map[string]bool{`7`: false, `{}`: false, `null`: false, `{"version":0}`: false, `{"version":9,"more":1}`: true} {
		b.Extra = map[string]json.RawMessage{"kbroker": json.RawMessage(other)}
		if got, err := DecodeBroker(1, b.Encode()); err != nil || got.Kbroker() != want {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestUncleanRestart(t *testing.T) {
	b := NewBrokerRegistration([]Endpoint{{"PLAINTEXT", "PLAINTEXT", "h", 9092}}, "", 1)
	if b.UncleanRestart() {
		t.Error("unclean from the start")
	}
	b.MarkUncleanRestart()
	got, err := DecodeBroker(1, b.Encode())
	if err != nil || !got.UncleanRestart() || !strings.Contains(string(b.Encode()), `"kbroker":{"version":1,"unclean_restart":true}`) {
		t.Errorf("%s: %+v, %v", b.Encode(), got, err)
	}
	for _, other := range []string{`7`, `{}`, `{"version":2,"unclean_restart":true}`, `{"version":1,"unclean_restart":false}`} {
		b.Extra = map[string]json.RawMessage{"kbroker": json.RawMessage(other)}
		if got, err := DecodeBroker(1, b.Encode()); err != nil || got.UncleanRestart() {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestOtherCodecs(t *testing.T) {
	tps := []cluster.TopicPartition{{Topic: "a", Partition: 1}, {Topic: "b", Partition: 0}}
	text := `{"version":1,"partitions":[{"topic":"a","partition":1},{"topic":"b","partition":0}]}`
	if string(EncodeIsrChange(tps)) != text || string(EncodePreferredElection(tps)) != text {
		t.Errorf("%s", EncodeIsrChange(tps))
	}
	got, err := DecodeIsrChange("isr_change_0", []byte(text))
	if diff := cmp.Diff(tps, got); diff != "" || err != nil {
		t.Errorf("(%v) %s", err, diff)
	}
	got, err = DecodePreferredElection([]byte(text))
	if diff := cmp.Diff(tps, got); diff != "" || err != nil {
		t.Errorf("(%v) %s", err, diff)
	}
	moves := []Reassignment{{tps[0], []cluster.BrokerID{1, 2}}}
	if s := string(EncodeReassign(moves)); s != `{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[1,2]}]}` {
		t.Error(s)
	}
	again, err := DecodeReassign(EncodeReassign(moves))
	if diff := cmp.Diff(moves, again); diff != "" || err != nil {
		t.Errorf("(%v) %s", err, diff)
	}
	if s := string(EncodeLogDirEvent(4)); s != `{"version":1,"broker":4,"event":1}` {
		t.Error(s)
	}
	if id, err := DecodeLogDirEvent("log_dir_event_0", EncodeLogDirEvent(4)); id != 4 || err != nil {
		t.Error(id, err)
	}
	if c, err := DecodeConfigChange("x", []byte(`{"version":1,"entity_type":"topics","entity_name":"t"}`)); c != (ConfigChange{TopicConfigs, "t"}) || err != nil {
		t.Error(c, err)
	}
	if user, client, ok := UserClientOf("u/clients/c"); user != "u" || client != "c" || !ok {
		t.Error(user, client, ok)
	}
	if _, _, ok := UserClientOf("u"); ok {
		t.Error("a user alone is no client")
	}
	v1 := Feature{Version: 1, Enabled: false, Finalized: map[string]FinalizedFeature{"f": {1, 2}}}
	f, err := DecodeFeature(v1.Encode())
	if diff := cmp.Diff(v1, f); diff != "" || err != nil {
		t.Errorf("%s (%v) %s", v1.Encode(), err, diff)
	}
	config := map[string]string{"k": "a\"\\\n\t\r\b\f\x01<é\u2028>&", "": "", "ü": "x"}
	text = `{"version":1,"config":{"":"","k":"a\"\\\n\t\r\b\f\u0001<é` + "\u2028" + `>&","ü":"x"}}`
	if string(EncodeEntityConfig(config)) != text {
		t.Errorf("%s", EncodeEntityConfig(config))
	}
	if got, err := DecodeEntityConfig("/x", []byte(text)); !cmp.Equal(got, config) || err != nil {
		t.Error(got, err)
	}
	for _, none := range [][]byte{nil, {}, []byte(`{"version":1}`), []byte(`{"version":1,"config":null}`)} {
		if got, err := DecodeEntityConfig("/x", none); len(got) != 0 || got == nil || err != nil {
			t.Error(got, err)
		}
	}
}

func TestProducerIDBlocks(t *testing.T) {
	if _, ok, err := DecodeProducerIDBlock(nil); ok || err != nil {
		t.Error(ok, err)
	}
	first, ok := ProducerIDBlock{}.Next(false, 3)
	if first != (ProducerIDBlock{3, 0, 999}) || !ok {
		t.Error(first)
	}
	second, ok := first.Next(true, 4)
	if second != (ProducerIDBlock{4, 1000, 1999}) || !ok {
		t.Error(second)
	}
	if _, ok := (ProducerIDBlock{1, 0, math.MaxInt64 - 999}).Next(true, 1); ok {
		t.Error("ids beyond the last one")
	}
	if next, ok := (ProducerIDBlock{1, 0, math.MaxInt64 - 1000}).Next(true, 1); !ok || next.Last != math.MaxInt64 {
		t.Error(next, ok)
	}
}

// TestBadZnodes: each is an error that names the path, and nothing else happens.
func TestBadZnodes(t *testing.T) {
	tp := cluster.TopicPartition{Topic: "t", Partition: 2}
	decoders := map[string]func([]byte) error{
		"broker":     func(b []byte) error { _, err := DecodeBroker(1, b); return err },
		"topic":      func(b []byte) error { _, err := DecodeTopic("t", b); return err },
		"state":      func(b []byte) error { _, err := DecodeState(tp, b, 0); return err },
		"controller": func(b []byte) error { _, err := DecodeController(b); return err },
		"epoch":      func(b []byte) error { _, err := DecodeControllerEpoch(b); return err },
		"clusterid":  func(b []byte) error { _, err := DecodeClusterID(b); return err },
		"feature":    func(b []byte) error { _, err := DecodeFeature(b); return err },
		"block":      func(b []byte) error { _, _, err := DecodeProducerIDBlock(b); return err },
		"change":     func(b []byte) error { _, err := DecodeConfigChange("c", b); return err },
		"config":     func(b []byte) error { _, err := DecodeEntityConfig("/config/topics/t", b); return err },
		"isr":        func(b []byte) error { _, err := DecodeIsrChange("i", b); return err },
		"logdir":     func(b []byte) error { _, err := DecodeLogDirEvent("l", b); return err },
		"reassign":   func(b []byte) error { _, err := DecodeReassign(b); return err },
		"election":   func(b []byte) error { _, err := DecodePreferredElection(b); return err },
	}
	paths := map[string]string{
		"broker": "/brokers/ids/1", "topic": "/brokers/topics/t", "state": "/brokers/topics/t/partitions/2/state",
		"controller": "/controller", "epoch": "/controller_epoch", "clusterid": "/cluster/id", "feature": "/feature",
		"block": "/latest_producer_id_block", "change": "/config/changes/c", "config": "/config/topics/t",
		"isr": "/isr_change_notification/i", "logdir": "/log_dir_event_notification/l",
		"reassign": "/admin/reassign_partitions", "election": "/admin/preferred_replica_election",
	}
	check := func(kind, data string) {
		t.Helper()
		err := decoders[kind]([]byte(data))
		if !errors.Is(err, ErrBadZnode) || !strings.Contains(err.Error(), paths[kind]+":") {
			t.Errorf("%s %s: error %v", kind, data, err)
		}
	}
	for kind := range decoders { // for all of them
		for _, data := range []string{"{", "[]", `"x"`, "null", "x", "\xff{}", `{"a":"` + "\xc3" + `"}`, `{"version":99}`, `{"version":"1"}`, `{"version":1.0,"config":7}`, "{]"} {
			if kind == "clusterid" && strings.HasPrefix(data, `{"version"`) {
				data = `{"version":"1"}`
			}
			check(kind, data)
		}
		if kind != "config" && kind != "block" {
			check(kind, "")
		}
	}
	for kind, list := range map[string][]string{
		"broker": {
			`{"version":0,"jmx_port":1}`, `{"version":6,"jmx_port":1}`, `{"version":1,"jmx_port":1}`, `{"version":2,"jmx_port":1}`, `{"version":5}`,
			`{"version":2,"jmx_port":1,"endpoints":["x"]}`, `{"version":2,"jmx_port":1,"endpoints":["SSL://h:99999"]}`, `{"version":2,"jmx_port":1,"endpoints":[1]}`,
			`{"version":2,"jmx_port":1,"endpoints":["CLIENT://h:1"]}`, `{"version":4,"jmx_port":1,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"WHAT"}}`,
			`{"version":2,"jmx_port":1,"endpoints":["SSL://h:1","ssl://h:2"]}`, `{"version":2,"jmx_port":1,"endpoints":["SSL://a b:1"]}`,
			`{"version":5,"jmx_port":1,"endpoints":[],"features":{"f":{"min_version":1}}}`, `{"version":5,"jmx_port":1,"endpoints":[],"features":{"f":7}}`,
			`{"version":1,"jmx_port":1,"host":"h","port":70000}`, `{"version":1,"jmx_port":1,"host":5,"port":7}`,
		},
		"topic": {
			`{"version":4}`, `{"partitions":{"x":[1]}}`, `{"partitions":{"-1":[1]}}`, `{"partitions":{"01":[1]}}`, `{"partitions":{"2147483648":[1]}}`,
			`{"partitions":{"0":[-1]}}`, `{"partitions":{"0":["1"]}}`, `{"partitions":{"0":[2147483648]}}`, `{"partitions":{"0":{}}}`, `{"partitions":[]}`,
			`{"topic_id":"short"}`, `{"topic_id":5}`, `{"partitions":{"0":[1]},"adding_replicas":{"0":1}}`, `{"partitions":{"0":[1.5]}}`,
		},
		"state": {
			`{"version":2,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[]}`, `{"leader":1,"leader_epoch":1,"isr":[]}`,
			`{"leader":1,"leader_epoch":1,"controller_epoch":1}`, `{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":5}`,
			`{"leader":1,"leader_epoch":-1,"controller_epoch":1,"isr":[]}`, `{"leader":-3,"leader_epoch":1,"controller_epoch":1,"isr":[]}`,
			`{"leader":1,"leader_epoch":99999999999,"controller_epoch":1,"isr":[]}`, `{"Leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[]}`,
			`{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[],"leader_recovery_state":2}`,
		},
		"controller": {`{"version":1}`, `{"brokerid":"1"}`, `{"version":3,"brokerid":1}`, `{"brokerid":1,"kraftControllerEpoch":"x"}`},
		"epoch":      {"-1", "1.5", "2147483648", " 7"},
		"clusterid":  {`{"id":""}`, `{"id":7}`},
		"feature": {
			`{"version":2,"features":{}}`, `{"version":2,"status":2,"features":{}}`, `{"version":2,"status":1}`, `{"version":3,"status":1,"features":{}}`,
			`{"version":2,"status":1,"features":{"f":{}}}`, `{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}`,
			`{"version":1,"status":1,"features":{"f":{"max_version_level":2}}}`, `{"version":1,"status":1,"features":{"f":{"max_version_level":2,"min_version_level":3}}}`,
			`{"version":2,"status":1,"features":{"f":1}}`, `{"version":2,"status":1,"features":{"f":{"max_version_level":40000}}}`,
		},
		"block": {
			`{"version":1,"broker":1,"block_start":1,"block_end":"2"}`, `{"version":1,"broker":1,"block_start":"9","block_end":"2"}`,
			`{"version":1,"broker":1,"block_start":"-5","block_end":"2"}`, `{"version":1,"broker":1,"block_start":"0","block_end":"99999999999999999999"}`,
		},
		"change": {
			`{"version":2}`, `{"version":2,"entity_path":"topics"}`, `{"version":2,"entity_path":"topics/"}`, `{"version":2,"entity_path":"what/x"}`,
			`{"version":2,"entity_path":"topics/../x"}`, `{"version":1,"entity_type":"users","entity_name":"x"}`, `{"version":1,"entity_type":"topics"}`,
		},
		"config":   {`{"version":2,"config":{}}`, `{"version":1,"config":{"a":1}}`, `{"version":1,"config":{"a":null}}`, `{"version":1,"config":[]}`},
		"isr":      {`{"version":1,"partitions":[{"topic":"t"}]}`, `{"version":1,"partitions":[{"topic":"t","partition":-1}]}`, `{"version":1,"partitions":[5]}`},
		"logdir":   {`{"version":1,"broker":-1}`},
		"reassign": {`{"version":1,"partitions":[{"topic":"t","partition":1}]}`, `{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1]},{"topic":"t","partition":1,"replicas":[2]}]}`},
	} {
		for _, data := range list {
			check(kind, data)
		}
	}
}

func TestSanitize(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "alice": "alice", "a b": "a%20b", "a+b": "a%2Bb", "CN=x,OU=*": "CN%3Dx%2COU%3D%2A", "a.b-c_d~": "a.b-c_d%7E",
		"ü": "%C3%BC", "<default>": "%3Cdefault%3E", "%": "%25", "/": "%2F", "😀": "%F0%9F%98%80", "\xff": "%EF%BF%BD",
	} {
		if got := Sanitize(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
		back, err := Desanitize(want)
		if err != nil || back != strings.ToValidUTF8(in, "\uFFFD") {
			t.Errorf("%s: %q, %v", want, back, err)
		}
	}
	if got, err := Desanitize("a+b%2a"); got != "a b*" || err != nil {
		t.Error(got, err)
	}
	for _, bad := range []string{"%", "%2", "%zz", "a%"} {
		if _, err := Desanitize(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// The epoch is plain text, so that its error shows where it begins and ends.
func TestUnreadableControllerEpoch(t *testing.T) {
	for data, want := range map[string]string{
		"":           `/controller_epoch: unreadable znode: "" is not a number from 0 to 2147483647`,
		" 7\n":       `/controller_epoch: unreadable znode: " 7\n" is not a number from 0 to 2147483647`,
		"-1":         `/controller_epoch: unreadable znode: "-1" is not a number from 0 to 2147483647`,
		"2147483648": `/controller_epoch: unreadable znode: "2147483648" is not a number from 0 to 2147483647`,
	} {
		if _, err := DecodeControllerEpoch([]byte(data)); !errors.Is(err, ErrBadZnode) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
