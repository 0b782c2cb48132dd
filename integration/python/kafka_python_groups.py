"""Groups of kafka-python. A line for each case: "PASS name" or "FAIL name: why".

Usage: kafka_python_groups.py BOOTSTRAP PREFIX; PREFIX starts the name of every topic.
"""

import sys
import time
import traceback

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata

BOOTSTRAP, PREFIX = sys.argv[1:3]
ADMIN = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
CASES = []


def case(f):
    CASES.append(f)
    return f


def equal(what, got, want):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def topic(name, partitions):
    name = f"{PREFIX}.{name}"
    ADMIN.create_topics([NewTopic(name=name, num_partitions=partitions, replication_factor=1)])
    return name


def fill(name, partitions, value):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP)
    for sent in [producer.send(name, value=value, partition=p) for p in range(partitions)]:
        sent.get(30)
    producer.close()


class Member(ConsumerRebalanceListener):
    """A member that remembers what it was given and what it read."""

    def __init__(self, group, name, *assignors):
        self.owned, self.values = set(), []
        config = {"partition_assignment_strategy": list(assignors)} if assignors else {}
        self.consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                                      session_timeout_ms=6000, heartbeat_interval_ms=200, metadata_max_age_ms=1000, **config)
        # A leader that does not know the topic yet gives nobody anything, and with the
        # sticky assignor does not always come back to it.
        while not self.consumer.partitions_for_topic(name):
            time.sleep(0.05)
        self.consumer.subscribe([name], listener=self)

    def on_partitions_assigned(self, assigned):
        self.owned |= {p.partition for p in assigned}

    def on_partitions_revoked(self, revoked):
        self.owned -= {p.partition for p in revoked}

    def poll(self):
        for records in self.consumer.poll(timeout_ms=50).values():
            self.values += [(r.partition, r.offset, r.value) for r in records]

    def close(self):
        self.consumer.close(autocommit=False)


def settle(what, ok, *members):
    deadline = time.monotonic() + 40
    while not ok():
        assert time.monotonic() < deadline, f"waited in vain: {what}: {[m.owned for m in members]}"
        for m in members:
            m.poll()


def flows(name, n, *members):
    """One more record in each partition, read once by its owner, and committed."""
    for m in members:
        m.values = []
    fill(name, 6, b"v%d" % n)
    settle("records are read", lambda: sum(len(m.values) for m in members) >= 6, *members)
    equal("records", sorted(v for m in members for v in m.values), [(p, n, b"v%d" % n) for p in range(6)])
    for m in members:
        m.consumer.commit()
    equal("committed", [members[0].consumer.committed(TopicPartition(name, p)) for p in range(6)], [n + 1] * 6)


def shared(sizes, *members):
    everything = [p for m in members for p in m.owned]
    return sorted(everything) == list(range(6)) and sorted(len(m.owned) for m in members) == sizes


def members(assignor):
    def run():
        name = topic(f"members-{assignor.name}", 6)
        one, two = (Member(f"{name}.g", name, assignor) for _ in range(2))
        settle("one has all", lambda: shared([6], one), one)
        flows(name, 0, one)
        settle("two share", lambda: shared([3, 3], one, two), one, two)
        flows(name, 1, one, two)
        one.close()
        settle("one is left", lambda: shared([6], two), two)
        flows(name, 2, two)
        two.close()
    run.__name__ = f"members_{assignor.name}"
    case(run)


for each in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor):
    members(each)


@case
def commits():
    name = topic("commits", 6)
    fill(name, 6, b"a")
    fill(name, 6, b"b")
    group = f"{name}.g"
    m = Member(group, name)
    settle("all are read", lambda: len(m.values) == 12, m)
    zero = TopicPartition(name, 0)
    equal("position", m.consumer.position(zero), 2)
    equal("end", m.consumer.end_offsets([zero])[zero], 2)
    equal("committed", m.consumer.committed(zero), None)
    m.consumer.commit({zero: OffsetAndMetadata(1, "noted", -1)})
    got = m.consumer.committed(zero, metadata=True)
    equal("committed", (got.offset, got.metadata), (1, "noted"))
    m.consumer.seek(zero, 0)
    settle("two are read again", lambda: len(m.values) == 14, m)
    equal("which", m.values[12:], [(0, 0, b"a"), (0, 1, b"b")])
    m.close()
    offsets = ADMIN.list_group_offsets({group: None})[group]
    equal("offsets", {(p.partition, o.offset) for p, o in offsets.items()}, {(0, 1)})


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
