"""Cases of confluent-kafka. A line for each: "PASS name" or "FAIL name: why".

Usage: cases.py BOOTSTRAP PREFIX; PREFIX starts the name of every topic.
"""

import sys
import time
import traceback

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from confluent_kafka.admin import OffsetSpec, ResourceType

BOOTSTRAP, PREFIX = sys.argv[1:3]
CASES = []


def case(f):
    CASES.append(f)
    return f


def equal(what, got, want):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})


def topic(name, partitions=1, **config):
    name = f"{PREFIX}.{name}"
    new = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    ADMIN.create_topics([new])[name].result(30)
    return name


def produce(name, records, **config):
    """Produces (key, value, headers, timestamp) records to partition 0; their delivered messages."""
    delivered = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, **{k.replace("_", "."): v for k, v in config.items()}})
    for key, value, headers, timestamp in records:
        producer.produce(name, partition=0, key=key, value=value, headers=headers, timestamp=timestamp,
                         on_delivery=lambda err, msg: delivered.append((err, msg)))
    equal("left in the queue", producer.flush(30), 0)
    return delivered


def consumer(**config):
    return Consumer({
        "bootstrap.servers": BOOTSTRAP, "group.id": "unused", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "check.crcs": True, **{k.replace("_", "."): v for k, v in config.items()}})


def consume(name, n, offset=0, **config):
    c = consumer(**config)
    c.assign([TopicPartition(name, 0, offset)])
    out, deadline = [], time.monotonic() + 30
    while len(out) < n and time.monotonic() < deadline:
        for m in c.consume(n - len(out), 0.2):
            assert m.error() is None, m.error()
            out.append(m)
    equal("records consumed", len(out), n)
    position = c.position([TopicPartition(name, 0)])[0].offset
    equal("position", position, out[-1].offset() + 1)
    c.close()
    return out


@case
def send_and_read():
    name = topic("send")
    sent = produce(name, [(f"k{i}", f"v{i}", [("h", f"x{i}"), ("h", None), ("e", b"")], 1000 + i) for i in range(10)])
    equal("delivered", [(err, m.offset()) for err, m in sent], [(None, i) for i in range(10)])
    for i, m in enumerate(consume(name, 10)):
        equal("record", (m.offset(), m.key(), m.value(), m.timestamp()), (i, b"k%d" % i, b"v%d" % i, (TIMESTAMP_CREATE_TIME, 1000 + i)))
        equal("headers", m.headers(), [("h", b"x%d" % i), ("h", None), ("e", b"")])


@case
def null_and_empty():
    name = topic("null")
    pairs = [(None, None), (b"", b""), (None, b""), (b"", None)]
    produce(name, [(k, v, None, 0) for k, v in pairs])
    equal("pairs", [(m.key(), m.value()) for m in consume(name, 4)], pairs)


def codec(which):
    def run():
        name = topic(f"codec-{which}")
        records = [(f"k{i}".encode(), (f"value {i} " * 10).encode(), None, 0) for i in range(2000)]
        produce(name, records, compression_type=which, linger_ms=20)
        equal("records", [(m.key(), m.value()) for m in consume(name, 2000)], [r[:2] for r in records])
    run.__name__ = f"codec_{which}"
    return run


for which in ("none", "gzip", "snappy", "lz4", "zstd"):
    case(codec(which))


def acks(which, idempotent):
    def run():
        name = topic(f"acks-{which}-{idempotent}")
        sent = produce(name, [(None, f"v{i}", None, 0) for i in range(100)], acks=which, enable_idempotence=idempotent)
        equal("errors", [err for err, _ in sent if err], [])
        equal("values", [m.value() for m in consume(name, 100)], [b"v%d" % i for i in range(100)])
    run.__name__ = f"acks_{which}_idempotent_{idempotent}"
    return run


for which, idempotent in (("0", False), ("1", False), ("all", False), ("all", True)):
    case(acks(which, idempotent))


@case
def offsets():
    name = topic("offsets")
    produce(name, [(None, f"v{i}", None, 100 * (i + 1)) for i in range(5)])
    c = consumer()
    tp = TopicPartition(name, 0)
    equal("watermarks", c.get_watermark_offsets(tp, timeout=10), (0, 5))
    for ts, want in ((50, 0), (100, 0), (101, 1), (500, 4), (501, -1)):
        equal(f"offset for {ts}", c.offsets_for_times([TopicPartition(name, 0, ts)], timeout=10)[0].offset, want)
    c.close()
    equal("from 3", [m.value() for m in consume(name, 2, offset=3)], [b"v3", b"v4"])
    for spec, want in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5), (OffsetSpec.max_timestamp(), 4), (OffsetSpec.for_timestamp(250), 2)):
        got = ADMIN.list_offsets({tp: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)[tp].result(10)
        equal(f"{spec}", got.offset, want)
    low = ADMIN.delete_records([TopicPartition(name, 0, 2)])[tp].result(10)
    equal("low watermark", low.low_watermark, 2)
    c = consumer()
    equal("watermarks", c.get_watermark_offsets(tp, timeout=10), (2, 5))
    c.close()


@case
def log_append_time():
    name = topic("append-time", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    produce(name, [(None, "v", None, 5)])
    kind, timestamp = consume(name, 1)[0].timestamp()
    equal("timestamp type", kind, TIMESTAMP_LOG_APPEND_TIME)
    assert before <= timestamp <= time.time() * 1000, timestamp


@case
def out_of_range():
    name = topic("range")
    produce(name, [(None, "v", None, 0)])
    c = consumer(auto_offset_reset="error")
    c.assign([TopicPartition(name, 0, 77)])
    deadline = time.monotonic() + 20
    code = None
    while code is None and time.monotonic() < deadline:
        m = c.poll(0.2)
        code = m.error().code() if m is not None and m.error() else None
    c.close()
    equal("error", code, KafkaError._AUTO_OFFSET_RESET)


def fails(code, future):
    try:
        future.result(30)
    except KafkaException as e:
        equal("error", e.args[0].code(), code)
        return
    raise AssertionError(f"no error, want {code}")


def config_of(name, key):
    resource = ConfigResource(ResourceType.TOPIC, name)
    return ADMIN.describe_configs([resource])[resource].result(10)[key].value


@case
def administration():
    a = ADMIN
    name = topic("admin", 2, retention_ms="5555")
    fails(KafkaError.TOPIC_ALREADY_EXISTS, a.create_topics([NewTopic(name, 1, 1)])[name])
    fails(KafkaError.INVALID_REPLICATION_FACTOR, a.create_topics([NewTopic(name + "x", 1, 3)])[name + "x"])
    meta = a.list_topics(name, timeout=10)
    equal("brokers", {i: f"{b.host}:{b.port}" for i, b in meta.brokers.items()}, {1: BOOTSTRAP})
    equal("partitions", {p: (m.leader, m.isrs) for p, m in meta.topics[name].partitions.items()}, {0: (1, [1]), 1: (1, [1])})
    equal("retention.ms", config_of(name, "retention.ms"), "5555")
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[
        ConfigEntry("retention.ms", "6666", incremental_operation=AlterConfigOpType.SET)])
    a.incremental_alter_configs([resource])[resource].result(10)
    deadline = time.monotonic() + 20
    while config_of(name, "retention.ms") != "6666" and time.monotonic() < deadline:
        pass
    equal("retention.ms", config_of(name, "retention.ms"), "6666")
    a.create_partitions([NewPartitions(name, 3)])[name].result(10)
    cluster = a.describe_cluster().result(10)
    equal("controller", cluster.controller.id, 1)
    equal("cluster id", len(cluster.cluster_id), 22)
    a.delete_topics([name])[name].result(10)
    fails(KafkaError.UNKNOWN_TOPIC_OR_PART, a.delete_topics([name + ".no"])[name + ".no"])


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
