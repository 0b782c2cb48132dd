package zkmeta

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kbroker/kbroker/cluster"
)

// recode reads a znode of a real cluster by its path and writes it again; ok is
// false for a znode without a codec.
func recode(path, data string) (again string, ok bool, err error) {
	b := []byte(data)
	enc := func(e []byte, err error) (string, bool, error) { return string(e), true, err }
	name := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasPrefix(path, BrokerIDsPath+"/"):
		id, _ := BrokerOfPath(path)
		v, err := DecodeBroker(id, b)
		return enc(v.Encode(), err)
	case strings.HasSuffix(path, "/state"):
		tp, _ := PartitionOfPath(path)
		v, err := DecodeState(tp, b, 0)
		return enc(EncodeState(v), err)
	case strings.HasPrefix(path, TopicsPath+"/") && data != "":
		topic, _ := TopicOfPath(path)
		v, err := DecodeTopic(topic, b)
		return enc(v.Encode(), err)
	case path == ControllerPath:
		v, err := DecodeController(b)
		return enc(v.Encode(), err)
	case path == ControllerEpochPath:
		v, err := DecodeControllerEpoch(b)
		return enc(EncodeControllerEpoch(v), err)
	case path == ClusterIDPath:
		v, err := DecodeClusterID(b)
		return enc(EncodeClusterID(v), err)
	case path == FeaturePath:
		v, err := DecodeFeature(b)
		return enc(v.Encode(), err)
	case path == ProducerIDBlockPath:
		v, _, err := DecodeProducerIDBlock(b)
		return enc(v.Encode(), err)
	case strings.HasPrefix(path, ConfigChangesPath+"/"):
		v, err := DecodeConfigChange(name, b)
		return enc(v.Encode(), err)
	case strings.HasPrefix(path, ConfigPath+"/") && data != "":
		v, err := DecodeEntityConfig(path, b)
		return enc(EncodeEntityConfig(v), err)
	}
	return "", false, nil
}

// TestGolden: what Apache Kafka 3.9 wrote is written again byte for byte, but
// for the order of the fields of an object.
func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/znodes.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	codecs := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		path, rest, _ := strings.Cut(line, " ")
		_, data, _ := strings.Cut(rest, " ")
		data = strings.TrimPrefix(data, "E ")
		if strings.HasPrefix(data, `"`) { // plain text is quoted in the file
			data = strings.Trim(data, `"`)
		}
		if err := ValidatePath(path, false); err != nil {
			t.Error(err)
		}
		again, ok, err := recode(path, data)
		if !ok {
			if data != "" {
				t.Errorf("no codec for %s", line)
			}
			continue
		}
		codecs++
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if again == data {
			continue
		}
		var want, got any
		if json.Unmarshal([]byte(data), &want) != nil || json.Unmarshal([]byte(again), &got) != nil || !reflect.DeepEqual(want, got) || len(again) != len(data) {
			t.Errorf("%s: written again as %s", line, again)
		} else {
			t.Logf("%s: another order of fields: %s", path, again)
		}
	}
	if codecs < 15 {
		t.Errorf("only %d znodes have codecs", codecs)
	}
}

func TestGoldenValues(t *testing.T) {
	b, err := DecodeBroker(11, []byte(`{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:19101"],"jmx_port":-1,"port":19101,"host":"127.0.0.1","version":5,"timestamp":"1795958007449"}`))
	want := NewBrokerRegistration([]Endpoint{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 19101}}, "", 1795958007449)
	if diff := cmp.Diff(want, b); diff != "" || err != nil {
		t.Errorf("broker (%v): %s", err, diff)
	}
	topic, err := DecodeTopic("cfg", []byte(`{"partitions":{"0":[13,11,12],"1":[12,13,11]},"topic_id":"yZh5BCwLTyeOAN3DxwKGLA","adding_replicas":{},"removing_replicas":{},"version":3}`))
	if err != nil || topic.ID.String() != "yZh5BCwLTyeOAN3DxwKGLA" || len(topic.Partitions) != 2 ||
		!topic.Partitions[1].Equal(cluster.Assignment{Replicas: []cluster.BrokerID{12, 13, 11}}) {
		t.Errorf("topic %+v, %v", topic, err)
	}
	s, err := DecodeState(cluster.TopicPartition{Topic: "gap"}, []byte(`{"controller_epoch":2,"leader":12,"version":1,"leader_epoch":3,"isr":[12,13,11]}`), 6)
	wantState := cluster.LeaderAndISR{Leader: 12, LeaderEpoch: 3, ISR: []cluster.BrokerID{12, 13, 11}, ControllerEpoch: 2, ZKVersion: 6}
	if err != nil || !s.Equal(wantState) {
		t.Errorf("state %+v, %v", s, err)
	}
	c, err := DecodeController([]byte(`{"version":2,"brokerid":12,"timestamp":"1795957897148","kraftControllerEpoch":-1}`))
	if c != (Controller{12, 1795957897148, -1}) || err != nil {
		t.Errorf("controller %+v, %v", c, err)
	}
	p, ok, err := DecodeProducerIDBlock([]byte(`{"version":1,"broker":11,"block_start":"1000","block_end":"1999"}`))
	if p != (ProducerIDBlock{11, 1000, 1999}) || !ok || err != nil {
		t.Errorf("block %+v, %v", p, err)
	}
	config, err := DecodeEntityConfig("/config/topics/cfg", []byte(`{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"1000000"}}`))
	if diff := cmp.Diff(map[string]string{"cleanup.policy": "compact", "retention.ms": "1000000"}, config); diff != "" || err != nil {
		t.Errorf("config (%v): %s", err, diff)
	}
	change, err := DecodeConfigChange("config_change_0000000001", []byte(`{"version":2,"entity_path":"users/alice"}`))
	if change != (ConfigChange{UserConfigs, "alice"}) || err != nil || change.EntityPath() != "/config/users/alice" {
		t.Errorf("change %+v, %v", change, err)
	}
	feature, err := DecodeFeature([]byte(`{"features":{},"version":2,"status":1}`))
	if diff := cmp.Diff(Feature{Version: 2, Enabled: true}, feature); diff != "" || err != nil {
		t.Errorf("feature (%v): %s", err, diff)
	}
}
