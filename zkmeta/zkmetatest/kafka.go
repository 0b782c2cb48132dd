package zkmetatest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/zkmeta"
)

func testPersistentPaths(f *fixture) {
	for range 2 { // the second time there is nothing to do
		f.ok(zkmeta.EnsurePersistentPaths(f.ctx, f.s))
	}
	for _, path := range zkmeta.PersistentPaths() {
		data, st, err := f.s.Get(f.ctx, path, false)
		f.ok(err)
		equal(f, path+" has data", data != nil, false)
		equal(f, path+" version", st.Version, 0)
	}
	names, _, err := f.s.Children(f.ctx, "/config", false)
	f.ok(err)
	equal(f, "children of /config", fmt.Sprint(names), "[brokers changes clients ips topics users]")
	f.ok(zkmeta.CreateWithParents(f.ctx, f.s, "/x/y/z", []byte("d")))
	f.fails(zkmeta.CreateWithParents(f.ctx, f.s, "/x/y/z", nil), zkmeta.ErrNodeExists)
}

func testClusterID(f *fixture) {
	_, found, err := zkmeta.GetClusterID(f.ctx, f.s)
	f.ok(err)
	equal(f, "there is an id", found, false)
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			id, err := zkmeta.GetOrCreateClusterID(f.ctx, f.s, fmt.Sprintf("id-%d", i))
			if err != nil {
				f.t.Error(err)
			}
			ids[i] = id
		})
	}
	wg.Wait()
	for _, id := range ids {
		equal(f, "id", id, ids[0])
	}
	id, found, err := zkmeta.GetClusterID(f.ctx, f.s)
	f.ok(err)
	equal(f, "id", id, ids[0])
	equal(f, "there is an id", found, true)
}

func testElection(f *fixture) {
	_, _, found, err := zkmeta.GetController(f.ctx, f.s, true)
	f.ok(err)
	equal(f, "there is a controller", found, false)
	epoch, version, err := zkmeta.GetOrCreateControllerEpoch(f.ctx, f.s)
	f.ok(err)
	equal(f, "initial epoch", epoch, 0)
	equal(f, "initial version", version, 0)
	c := zkmeta.Controller{BrokerID: 7, Timestamp: 1700000000000, KRaftControllerEpoch: zkmeta.NoKRaftController}
	r := f.multi(zkmeta.Elect(c, epoch+1, version)...)
	mine := r[1].Stat.Version
	equal(f, "version of the epoch", mine, 1)
	f.event(zkmeta.Created, zkmeta.ControllerPath)
	got, st, found, err := zkmeta.GetController(f.ctx, f.s, true)
	f.ok(err)
	equal(f, "controller", got, c)
	equal(f, "found", found, true)
	equal(f, "owner", st.EphemeralOwner, f.s.ID())

	_, err = f.s.Multi(f.ctx, zkmeta.Elect(c, epoch+1, version)...)
	f.fails(err, zkmeta.ErrNodeExists)
	f.multi(zkmeta.CheckControllerEpoch(mine), persistent("/x"))
	// Another one takes over: the old one's writes fail.
	f.multi(zkmeta.Delete(zkmeta.ControllerPath, -1))
	f.event(zkmeta.Deleted, zkmeta.ControllerPath)
	epoch, version, err = zkmeta.GetOrCreateControllerEpoch(f.ctx, f.s)
	f.ok(err)
	f.multi(zkmeta.Elect(c, epoch+1, version)...)
	_, err = f.s.Multi(f.ctx, zkmeta.CheckControllerEpoch(mine), persistent("/y"))
	f.fails(err, zkmeta.ErrBadVersion)
	epoch, _, found, err = zkmeta.GetControllerEpoch(f.ctx, f.s)
	f.ok(err)
	equal(f, "epoch", epoch, 2)
	equal(f, "found", found, true)
}

func testBrokerIDs(f *fixture) {
	for i := range 3 { // the path is made when it is missing
		id, err := zkmeta.NextBrokerID(f.ctx, f.s, 1000)
		f.ok(err)
		equal(f, "id", id, cluster.BrokerID(1001+i))
	}
}

func testProducerIDs(f *fixture) {
	f.ok(zkmeta.EnsurePaths(f.ctx, f.s, zkmeta.ProducerIDBlockPath, "/guard"))
	got := map[cluster.ProducerID]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for b := range 4 {
		wg.Go(func() {
			for range 5 {
				block, err := zkmeta.NextProducerIDs(f.ctx, f.s, cluster.BrokerID(b), zkmeta.Check("/guard", 0))
				if err != nil || block.Broker != cluster.BrokerID(b) || block.Last != block.First+999 {
					f.t.Errorf("block %v, %v", block, err)
				}
				mu.Lock()
				if got[block.First] {
					f.t.Errorf("%d was given out twice", block.First)
				}
				got[block.First] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	equal(f, "blocks", len(got), 20)
	for first := range 20 {
		equal(f, fmt.Sprintf("block %d", first), got[cluster.ProducerID(first*1000)], true)
	}
	f.multi(zkmeta.Set("/guard", nil, 0))
	_, err := zkmeta.NextProducerIDs(f.ctx, f.s, 1, zkmeta.Check("/guard", 0))
	f.fails(err, zkmeta.ErrBadVersion)
	failed, ok := errors.AsType[*zkmeta.MultiError](err)
	equal(f, "the guard failed", ok && failed.Index == 0, true)
}

func testConfigs(f *fixture) {
	f.ok(zkmeta.EnsurePersistentPaths(f.ctx, f.s))
	change := zkmeta.ConfigChange{Type: zkmeta.TopicConfigs, Name: "orders"}
	f.watchChildren(zkmeta.ConfigChangesPath)
	var wg sync.WaitGroup
	for i := range 8 { // none overwrites another
		wg.Go(func() {
			err := zkmeta.UpdateEntityConfig(f.ctx, f.s, change, func(old map[string]string) (map[string]string, error) {
				old["key"+strconv.Itoa(i)] = "v"
				return old, nil
			})
			if err != nil {
				f.t.Error(err)
			}
		})
	}
	wg.Wait()
	f.event(zkmeta.ChildrenChanged, zkmeta.ConfigChangesPath)
	config, st, found, err := zkmeta.GetEntityConfig(f.ctx, f.s, change.EntityPath())
	f.ok(err)
	equal(f, "keys", len(config), 8)
	equal(f, "found", found, true)
	equal(f, "version", st.Version, 7)

	nested := zkmeta.ConfigChange{Type: zkmeta.UserConfigs, Name: zkmeta.Sanitize("a b") + "/clients/" + zkmeta.DefaultEntity}
	f.ok(zkmeta.UpdateEntityConfig(f.ctx, f.s, nested, func(map[string]string) (map[string]string, error) {
		return map[string]string{"producer_byte_rate": "1"}, nil
	}))
	f.ok(zkmeta.UpdateEntityConfig(f.ctx, f.s, change, func(old map[string]string) (map[string]string, error) { return nil, nil }))
	f.absent(change.EntityPath())
	refused := errors.New("refused")
	f.fails(zkmeta.UpdateEntityConfig(f.ctx, f.s, change, func(map[string]string) (map[string]string, error) { return nil, refused }), refused)

	entities, err := zkmeta.ReadEntityConfigs(f.ctx, f.s, zkmeta.UserConfigs)
	f.ok(err)
	equal(f, "users", len(entities), 1)
	equal(f, "user", entities[0].Name, "a%20b")
	notes, err := zkmeta.ReadNotifications(f.ctx, f.s, zkmeta.ConfigChangesPath, -1, false)
	f.ok(err)
	equal(f, "notifications", len(notes), 10)
	for i, n := range notes {
		equal(f, "sequence", n.Sequence, int64(i))
		c, err := zkmeta.DecodeConfigChange(n.Name, n.Data)
		f.ok(err)
		want := change
		if i == 8 {
			want = nested
		}
		equal(f, "change", c, want)
	}
	later, err := zkmeta.ReadNotifications(f.ctx, f.s, zkmeta.ConfigChangesPath, 8, false)
	f.ok(err)
	equal(f, "notifications after 8", len(later), 1)
	f.ok(zkmeta.PurgeNotifications(f.ctx, f.s, notes, zkmeta.ConfigChangesPath, notes[0].Stat.Ctime))
	f.stat(zkmeta.ConfigChangesPath + "/" + notes[0].Name)
	for range 2 { // somebody else may have been faster
		f.ok(zkmeta.PurgeNotifications(f.ctx, f.s, notes, zkmeta.ConfigChangesPath, notes[9].Stat.Ctime+1))
	}
	left, err := zkmeta.ReadNotifications(f.ctx, f.s, zkmeta.ConfigChangesPath, -1, true)
	f.ok(err)
	equal(f, "notifications left", len(left), 0)
}

// testWriteEach: in 450 writes of one or two operations some fail, each for
// itself.
func testConsumerOffsets(f *fixture) {
	f.ok(zkmeta.EnsurePersistentPaths(f.ctx, f.s))
	tp := cluster.TopicPartition{Topic: "orders", Partition: 3}
	_, found, err := zkmeta.GetConsumerOffset(f.ctx, f.s, "g", tp)
	f.ok(err)
	equal(f, "there is an offset", found, false)
	var wg sync.WaitGroup
	for range 8 { // the first commits of several consumers at once
		wg.Go(func() {
			if err := zkmeta.SetConsumerOffset(f.ctx, f.s, "g", tp, 41); err != nil {
				f.t.Error(err)
			}
		})
	}
	wg.Wait()
	f.ok(zkmeta.SetConsumerOffset(f.ctx, f.s, "g", tp, 42))
	data, _, err := f.s.Get(f.ctx, "/consumers/g/offsets/orders/3", false)
	f.ok(err)
	equal(f, "data", string(data), "42")
	o, found, err := zkmeta.GetConsumerOffset(f.ctx, f.s, "g", tp)
	f.ok(err)
	equal(f, "offset", o, 42)
	equal(f, "there is an offset", found, true)
	// What is above it has no data, and so has a group of that name no offset.
	_, found, err = zkmeta.GetConsumerOffset(f.ctx, f.s, "g/offsets/orders/3", tp)
	f.ok(err)
	equal(f, "there is an offset", found, false)
	for _, group := range []string{"", "..", "a//b", "a\x00"} {
		_, _, err := zkmeta.GetConsumerOffset(f.ctx, f.s, group, tp)
		f.fails(err, zkmeta.ErrInvalidPath)
		f.fails(zkmeta.SetConsumerOffset(f.ctx, f.s, group, tp, 1), zkmeta.ErrInvalidPath)
	}
	f.multi(zkmeta.Set("/consumers/g/offsets/orders/3", []byte("no"), cluster.AnyZKVersion))
	_, _, err = zkmeta.GetConsumerOffset(f.ctx, f.s, "g", tp)
	f.fails(err, zkmeta.ErrBadZnode)
}

func testWriteEach(f *fixture) {
	f.multi(persistent("/guard"), persistent("/w"))
	var writes [][]zkmeta.Op
	want := map[int]error{0: zkmeta.ErrBadVersion, 17: zkmeta.ErrNodeExists, 18: zkmeta.ErrNoNode, 449: zkmeta.ErrBadVersion}
	for i := range 450 {
		path := fmt.Sprintf("/w/%d", i)
		w := []zkmeta.Op{persistent(path), zkmeta.Set(path, nil, 0)}
		switch want[i] {
		case zkmeta.ErrBadVersion:
			w[1].Version = 5
		case zkmeta.ErrNodeExists:
			w = []zkmeta.Op{persistent("/w")}
		case zkmeta.ErrNoNode:
			w = append(w, zkmeta.Delete("/none", -1))
		}
		writes = append(writes, w)
	}
	guard := []zkmeta.Op{zkmeta.Check("/guard", 0)}
	for i, o := range zkmeta.WriteEach(f.ctx, f.s, guard, writes) {
		equal(f, "results", len(o.Results), len(writes[i]))
		if want[i] == nil {
			f.ok(o.Err)
			equal(f, "path", o.Results[0].Path, writes[i][0].Path)
			equal(f, "version", o.Results[1].Stat.Version, 1)
			continue
		}
		f.fails(o.Err, want[i])
		failed, _ := errors.AsType[*zkmeta.MultiError](o.Err)
		equal(f, "index within the write", failed.Index, len(writes[i])-1)
	}
	names, _, err := f.s.Children(f.ctx, "/w", false)
	f.ok(err)
	equal(f, "written", len(names), 450-len(want))

	// A guard that fails is the same failure for all.
	f.multi(zkmeta.Set("/guard", nil, 0))
	again := [][]zkmeta.Op{{zkmeta.Set("/w", nil, 0)}, {persistent("/w")}}
	for _, o := range zkmeta.WriteEach(f.ctx, f.s, guard, again) {
		f.fails(o.Err, zkmeta.ErrBadVersion)
		failed, _ := errors.AsType[*zkmeta.MultiError](o.Err)
		equal(f, "path of the guard", failed.Op.Path, "/guard")
	}
	equal(f, "nothing was done", f.stat("/w").Version, 0)
	equal(f, "no writes", len(zkmeta.WriteEach(f.ctx, f.s, guard, nil)), 0)
}

func testTopics(f *fixture) {
	f.ok(zkmeta.EnsurePersistentPaths(f.ctx, f.s))
	id := cluster.NewTopicID()
	topic := zkmeta.TopicAssignment{ID: id, Partitions: map[int32]cluster.Assignment{}}
	var partitions []cluster.TopicPartition
	ops := []zkmeta.Op{zkmeta.Create(zkmeta.PartitionsPath("big"), nil, zkmeta.Persistent, nil)}
	for p := range int32(300) {
		topic.Partitions[p] = cluster.Assignment{Replicas: []cluster.BrokerID{1, 2, cluster.BrokerID(p)}}
		tp := cluster.TopicPartition{Topic: "big", Partition: p}
		partitions = append(partitions, tp)
		ops = append(ops, zkmeta.CreateState(tp, cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1, 2}, ControllerEpoch: 3})...)
	}
	f.multi(zkmeta.CreateTopic("big", topic))
	f.multi(ops...)
	f.multi(zkmeta.CreateTopic("small", zkmeta.TopicAssignment{Partitions: map[int32]cluster.Assignment{0: {Replicas: []cluster.BrokerID{1}}}}))
	f.multi(zkmeta.Create(zkmeta.TopicPath("broken"), []byte("{"), zkmeta.Persistent, nil))

	topics, err := zkmeta.ReadTopics(f.ctx, f.s, true)
	f.ok(err)
	equal(f, "topics", len(topics), 3)
	equal(f, "sorted", topics[0].Topic+topics[1].Topic+topics[2].Topic, "bigbrokensmall")
	f.ok(topics[0].Err)
	equal(f, "id", topics[0].Assignment.ID, id)
	equal(f, "partitions", len(topics[0].Assignment.Partitions), 300)
	f.fails(topics[1].Err, zkmeta.ErrBadZnode)

	states, err := zkmeta.ReadStates(f.ctx, f.s, append(slices.Clone(partitions), cluster.TopicPartition{Topic: "small"}), false)
	f.ok(err)
	equal(f, "states", len(states), 300) // the other has none
	s := states[5]
	f.ok(s.Err)
	equal(f, "partition", s.Partition, partitions[5])
	next := s.State
	next.LeaderEpoch++
	next.ISR = []cluster.BrokerID{1}
	r := f.multi(zkmeta.SetState(s.Partition, next))
	equal(f, "partition epoch", r[0].Stat.Version, 1)
	_, err = f.s.Multi(f.ctx, zkmeta.SetState(s.Partition, next))
	f.fails(err, zkmeta.ErrBadVersion)
	next.ZKVersion = 1
	got, _, found, err := zkmeta.GetState(f.ctx, f.s, s.Partition, false)
	f.ok(err)
	equal(f, "state", found && got.Equal(next), true)

	f.multi(zkmeta.DeleteTopic("small"))
	marks, _, err := f.s.Children(f.ctx, zkmeta.DeleteTopicsPath, false)
	f.ok(err)
	equal(f, "to delete", fmt.Sprint(marks), "[small]")
	delete(topic.Partitions, 299)
	f.multi(zkmeta.SetTopic("big", topic, 0))
	f.event(zkmeta.DataChanged, zkmeta.TopicPath("big")) // ReadTopics watches
	f.create(zkmeta.TopicPath("new"))
	f.event(zkmeta.ChildrenChanged, zkmeta.TopicsPath)

	registration := zkmeta.NewBrokerRegistration([]zkmeta.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9092}}, "rack", 1)
	r = f.multi(zkmeta.Register(12, registration)...)
	f.multi(zkmeta.Create(zkmeta.BrokerPath(2), []byte("x"), zkmeta.Ephemeral, nil))
	brokers, err := zkmeta.ReadBrokers(f.ctx, f.s, false)
	f.ok(err)
	equal(f, "brokers", len(brokers), 2)
	equal(f, "by number", brokers[0].ID, 2)
	f.fails(brokers[0].Err, zkmeta.ErrBadZnode)
	f.ok(brokers[1].Err)
	equal(f, "epoch", brokers[1].Epoch, cluster.BrokerEpoch(r[1].Stat.Czxid))
	equal(f, "host", brokers[1].Registration.Host, "h")
	equal(f, "version of the registration", brokers[1].Stat.Version, 1)
}

// testConcurrent: counters that many raise by conditional writes.
func testConcurrent(f *fixture) {
	const workers, each = 8, 20
	f.multi(zkmeta.Create("/n", []byte("0"), zkmeta.Persistent, nil))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				for {
					data, st, err := f.s.Get(f.ctx, "/n", false)
					if err != nil {
						f.t.Error(err)
						return
					}
					n, _ := strconv.Atoi(string(data))
					_, err = f.s.Multi(f.ctx, zkmeta.Set("/n", []byte(strconv.Itoa(n+1)), st.Version))
					if err == nil {
						break
					}
					if !errors.Is(err, zkmeta.ErrBadVersion) {
						f.t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	data, st, err := f.s.Get(f.ctx, "/n", false)
	f.ok(err)
	equal(f, "count", string(data), strconv.Itoa(workers*each))
	equal(f, "version", int(st.Version), workers*each)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
