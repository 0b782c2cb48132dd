"""Groups of confluent-kafka. A line for each case: "PASS name" or "FAIL name: why".

Usage: groups.py BOOTSTRAP PREFIX PROTOCOL; PREFIX starts the name of every topic, PROTOCOL is classic or consumer.
"""

import sys
import time
import traceback

from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP, PREFIX, PROTOCOL = sys.argv[1:4]
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})
CASES = []


def case(f):
    CASES.append(f)
    return f


def equal(what, got, want):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def topic(name, partitions):
    name = f"{PREFIX}.{name}"
    ADMIN.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def fill(name, partitions, value):
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for p in range(partitions):
        producer.produce(name, partition=p, value=value)
    equal("left in the queue", producer.flush(30), 0)


class Member:
    """A member that remembers what it was given and what it read."""

    def __init__(self, group, name, **config):
        self.owned, self.values, self.moves, self.lost = set(), [], 0, 0
        settings = {"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                    "group.protocol": PROTOCOL, "topic.metadata.refresh.interval.ms": 1000}
        if PROTOCOL == "classic":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        settings |= {k.replace("_", "."): v for k, v in config.items()}
        self.cooperative = PROTOCOL == "consumer" or settings.get("partition.assignment.strategy") == "cooperative-sticky"
        self.consumer = Consumer(settings)
        self.consumer.subscribe([name], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_assign(self, consumer, partitions):
        self.moves += 1
        if not self.cooperative:
            self.owned = set()
        self.owned |= {p.partition for p in partitions}

    def on_revoke(self, consumer, partitions):
        self.moves += 1
        self.owned -= {p.partition for p in partitions}

    def on_lost(self, consumer, partitions):
        self.lost += 1
        self.owned -= {p.partition for p in partitions}

    def poll(self):
        for m in self.consumer.consume(100, 0.02):
            if m.error() is not None:
                raise AssertionError(m.error())
            self.values.append((m.partition(), m.offset(), m.value()))

    def close(self):
        self.consumer.close()


def settle(what, ok, *members):
    deadline = time.monotonic() + 40
    while not ok():
        assert time.monotonic() < deadline, f"waited in vain: {what}: {[m.owned for m in members]}"
        for m in members:
            m.poll()


def committed(consumer, name, partitions):
    got = consumer.committed([TopicPartition(name, p) for p in range(partitions)], timeout=20)
    assert all(p.error is None for p in got), got
    return [p.offset for p in got]


def flows(name, partitions, n, *members):
    """One more record in each partition, read once by its owner, and committed."""
    for m in members:
        m.values = []
    fill(name, partitions, b"v%d" % n)
    settle("records are read", lambda: sum(len(m.values) for m in members) >= partitions, *members)
    equal("records", sorted(v for m in members for v in m.values), [(p, n, b"v%d" % n) for p in range(partitions)])
    for m in members:
        assert {v[0] for v in m.values} <= m.owned, (m.values, m.owned)
        if m.values:
            m.consumer.commit(offsets=[TopicPartition(name, p, o + 1) for p, o, _ in m.values], asynchronous=False)
    equal("committed", committed(members[0].consumer, name, partitions), [n + 1] * partitions)


def shared(sizes, *members):
    everything = [p for m in members for p in m.owned]
    return sorted(everything) == list(range(6)) and sorted(len(m.owned) for m in members) == sizes


def members(label, **config):
    def run():
        name = topic(f"members-{label}", 6)
        member = lambda: Member(f"{name}.g", name, **config)
        one = member()
        settle("one has all", lambda: shared([6], one), one)
        flows(name, 6, 0, one)
        two = member()
        settle("two share", lambda: shared([3, 3], one, two), one, two)
        flows(name, 6, 1, one, two)
        three = member()
        settle("three share", lambda: shared([2, 2, 2], one, two, three), one, two, three)
        flows(name, 6, 2, one, two, three)
        one.close()
        settle("two are left", lambda: shared([3, 3], two, three), two, three)
        flows(name, 6, 3, two, three)
        two.close()
        settle("one is left", lambda: shared([6], three), three)
        flows(name, 6, 4, three)
        three.close()
        equal("lost", (one.lost, two.lost, three.lost), (0, 0, 0))
    run.__name__ = f"members_{label}"
    case(run)


if PROTOCOL == "classic":
    for strategy in ("range", "roundrobin", "cooperative-sticky"):
        members(strategy, partition_assignment_strategy=strategy)
else:
    for assignor in ("uniform", "range"):
        members(assignor, group_remote_assignor=assignor)


@case
def commits():
    name = topic("commits", 2)
    fill(name, 2, b"a")
    fill(name, 2, b"b")
    m = Member(f"{name}.g", name)
    settle("four are read", lambda: len(m.values) == 4, m)
    equal("position", sorted((p.partition, p.offset) for p in m.consumer.position([TopicPartition(name, 0), TopicPartition(name, 1)])), [(0, 2), (1, 2)])
    equal("committed", committed(m.consumer, name, 2), [-1001, -1001])
    m.consumer.commit(offsets=[TopicPartition(name, 0, 1, "noted")], asynchronous=False)
    got = m.consumer.committed([TopicPartition(name, 0)], timeout=20)[0]
    equal("committed", (got.offset, got.metadata), (1, "noted"))
    m.consumer.seek(TopicPartition(name, 1, 1))
    settle("one is read again", lambda: len(m.values) == 5, m)
    equal("which", m.values[4], (1, 1, b"b"))
    m.close()
    again = Member(f"{name}.g", name)
    settle("three are read", lambda: len(again.values) == 3, again)
    equal("resumed", sorted(again.values), [(0, 1, b"b"), (1, 0, b"a"), (1, 1, b"b")])
    again.close()


@case
def static_members():
    name = topic("static", 6)
    one, two = (Member(f"{name}.g", name, group_instance_id=i) for i in ("i1", "i2"))
    settle("two share", lambda: shared([3, 3], one, two), one, two)
    flows(name, 6, 0, one, two)
    moves, had = one.moves, set(two.owned)
    two.close()
    two = Member(f"{name}.g", name, group_instance_id="i2")
    settle("the second is back", lambda: two.owned == had, one, two)
    flows(name, 6, 1, one, two)
    equal("moves of the first", one.moves, moves)
    one.close()
    two.close()


@case
def administration():
    name = topic("admin", 2)
    group = f"{name}.g"
    fill(name, 2, b"a")
    m = Member(group, name, client_id="shown")
    settle("two are read", lambda: len(m.values) == 2, m)
    m.consumer.commit(asynchronous=False)
    described = ADMIN.describe_consumer_groups([group], request_timeout=20)[group].result(20)
    equal("state", described.state, ConsumerGroupState.STABLE)
    equal("members", [(d.client_id, d.host, sorted(p.partition for p in d.assignment.topic_partitions)) for d in described.members], [("shown", "/127.0.0.1", [0, 1])])
    equal("coordinator", described.coordinator.id, 1)
    fails(KafkaError.NON_EMPTY_GROUP, ADMIN.delete_consumer_groups([group], request_timeout=20)[group])
    m.close()
    listed = ADMIN.list_consumer_groups(request_timeout=20).result(20)
    equal("listed", [(g.state, g.is_simple_consumer_group) for g in listed.valid if g.group_id == group], [(ConsumerGroupState.EMPTY, False)])
    offsets = ADMIN.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=20)[group].result(20)
    equal("offsets", sorted((p.partition, p.offset) for p in offsets.topic_partitions), [(0, 1), (1, 1)])
    ADMIN.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0, 0)])], request_timeout=20)[group].result(20)
    offsets = ADMIN.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(name, 0)])], request_timeout=20)[group].result(20)
    equal("altered", offsets.topic_partitions[0].offset, 0)
    ADMIN.delete_consumer_groups([group], request_timeout=20)[group].result(20)
    fails(KafkaError.GROUP_ID_NOT_FOUND, ADMIN.delete_consumer_groups([group], request_timeout=20)[group])


def fails(code, future):
    try:
        future.result(30)
    except KafkaException as e:
        equal("error", e.args[0].code(), code)
        return
    raise AssertionError(f"no error, want {code}")


def main():
    failed = False
    for run in CASES:
        name = run.__name__.replace("_", "-")
        try:
            run()
            print(f"PASS {name}", flush=True)
        except Exception as e:
            failed = True
            print(f"FAIL {name}: {type(e).__name__} {e}".replace("\n", " "), flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


main()
