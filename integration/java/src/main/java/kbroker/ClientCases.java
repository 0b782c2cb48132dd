package kbroker;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producer and consumer, without groups: assign and poll. */
final class ClientCases {
    private final String bootstrap;
    private final String prefix;

    ClientCases(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
    }

    void addTo(Map<String, Check.Action> cases) {
        cases.put("send-get", this::sendGet);
        cases.put("positions", this::positions);
        cases.put("offsets-for-times", this::offsetsForTimes);
        cases.put("null-and-empty", this::nullAndEmpty);
        cases.put("headers", this::headers);
        cases.put("many-batches", this::manyBatches);
        cases.put("partition-by-key", this::partitionByKey);
        cases.put("out-of-range", this::outOfRange);
        cases.put("too-large", this::tooLarge);
        cases.put("log-append-time", this::logAppendTime);
        cases.put("given-transactions", this::givenTransactions);
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            cases.put("codec-" + codec, () -> codec(codec));
        }
        for (String acks : new String[] {"0", "1", "all"}) {
            cases.put("acks-" + acks, () -> acks(acks));
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("delivery.timeout.ms", "30000");
        config.put("request.timeout.ms", "10000");
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        return new KafkaProducer<>(config);
    }

    private KafkaConsumer<byte[], byte[]> consumer(String... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        return new KafkaConsumer<>(config);
    }

    /** A new topic with that many partitions; its name. */
    private String topic(String name, int partitions, String... configs) throws Exception {
        String topic = prefix + "." + name;
        Map<String, String> map = new HashMap<>();
        for (int i = 0; i < configs.length; i += 2) {
            map.put(configs[i], configs[i + 1]);
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(map))).all().get(30, TimeUnit.SECONDS);
        }
        return topic;
    }

    private static byte[] bytes(String s) {
        return s == null ? null : s.getBytes(UTF_8);
    }

    private static String text(byte[] b) {
        return b == null ? null : new String(b, UTF_8);
    }

    private static List<ConsumerRecord<byte[], byte[]>> pollN(KafkaConsumer<byte[], byte[]> consumer, int n) {
        List<ConsumerRecord<byte[], byte[]>> out = new ArrayList<>();
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (out.size() < n && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(out::add);
        }
        Check.equal("records polled", out.size(), n);
        return out;
    }

    private void sendGet() throws Exception {
        String topic = topic("send-get", 1);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int i = 0; i < 5; i++) {
                RecordMetadata md = producer.send(new ProducerRecord<>(topic, 0, 1000L + i, bytes("k" + i), bytes("value" + i))).get(30, TimeUnit.SECONDS);
                Check.equal("topic", md.topic(), topic);
                Check.equal("partition", md.partition(), 0);
                Check.equal("offset", md.offset(), (long) i);
                Check.equal("timestamp", md.timestamp(), 1000L + i);
                Check.equal("key size", md.serializedKeySize(), 2);
                Check.equal("value size", md.serializedValueSize(), 6);
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            TopicPartition tp = new TopicPartition(topic, 0);
            consumer.assign(List.of(tp));
            long next = 0;
            for (ConsumerRecord<byte[], byte[]> r : pollN(consumer, 5)) {
                Check.equal("offset", r.offset(), next);
                Check.equal("key", text(r.key()), "k" + next);
                Check.equal("value", text(r.value()), "value" + next);
                Check.equal("timestamp", r.timestamp(), 1000L + next);
                Check.equal("timestamp type", r.timestampType().name, "CreateTime");
                Check.equal("leader epoch", r.leaderEpoch().orElse(-1), 0);
                next++;
            }
            Check.equal("position", consumer.position(tp), 5L);
        }
    }

    private void positions() throws Exception {
        String topic = topic("positions", 2);
        TopicPartition p0 = new TopicPartition(topic, 0);
        TopicPartition p1 = new TopicPartition(topic, 1);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int i = 0; i < 3; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("v" + i)));
            }
            producer.flush();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Check.equal("end offsets", consumer.endOffsets(List.of(p0, p1)), Map.of(p0, 3L, p1, 0L));
            Check.equal("beginning offsets", consumer.beginningOffsets(List.of(p0, p1)), Map.of(p0, 0L, p1, 0L));
            consumer.assign(List.of(p0, p1));
            consumer.seekToEnd(List.of(p0));
            Check.equal("position at the end", consumer.position(p0), 3L);
            Check.equal("nothing at the end", consumer.poll(Duration.ofMillis(300)).count(), 0);
            consumer.seek(p0, 1);
            List<ConsumerRecord<byte[], byte[]>> recs = pollN(consumer, 2);
            Check.equal("from 1", text(recs.get(0).value()), "v1");
            Check.equal("position after", consumer.position(p0), 3L);
            consumer.seekToBeginning(List.of(p0));
            Check.equal("position at the start", consumer.position(p0), 0L);
            Check.equal("from the start", pollN(consumer, 3).get(0).offset(), 0L);
            List<PartitionInfo> infos = consumer.partitionsFor(topic);
            Check.equal("partitions", infos.size(), 2);
            for (PartitionInfo info : infos) {
                Check.equal("leader", info.leader().id(), 1);
                Check.equal("in sync", info.inSyncReplicas().length, 1);
            }
            Check.isTrue("the topic is listed", consumer.listTopics().containsKey(topic));
        }
    }

    private void offsetsForTimes() throws Exception {
        String topic = topic("times", 1);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", "50")) {
            for (int i = 1; i <= 100; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 10L * i, null, bytes("v" + i)));
            }
            producer.flush();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            for (int i = 1; i <= 100; i++) {
                OffsetAndTimestamp got = consumer.offsetsForTimes(Map.of(tp, 10L * i - 3)).get(tp);
                Check.equal("offset for " + (10 * i - 3), got.offset(), i - 1L);
                Check.equal("timestamp", got.timestamp(), 10L * i);
                Check.equal("leader epoch", got.leaderEpoch().orElse(-1), 0);
            }
            Check.equal("after the last", consumer.offsetsForTimes(Map.of(tp, 1001L)).get(tp), null);
        }
    }

    private void nullAndEmpty() throws Exception {
        String topic = topic("null-and-empty", 1);
        String[][] pairs = {{null, null}, {"", ""}, {null, ""}, {"", null}, {"k", null}, {null, "v"}};
        try (KafkaProducer<byte[], byte[]> producer = producer("batch.size", "0")) {
            for (String[] pair : pairs) {
                producer.send(new ProducerRecord<>(topic, 0, bytes(pair[0]), bytes(pair[1]))).get(30, TimeUnit.SECONDS);
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            int i = 0;
            for (ConsumerRecord<byte[], byte[]> r : pollN(consumer, pairs.length)) {
                Check.equal("key " + i, text(r.key()), pairs[i][0]);
                Check.equal("value " + i, text(r.value()), pairs[i][1]);
                i++;
            }
        }
    }

    private void headers() throws Exception {
        String topic = topic("headers", 1);
        List<Header> sent = List.of(new RecordHeader("a", bytes("1")), new RecordHeader("b", null), new RecordHeader("a", bytes("")));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.send(new ProducerRecord<byte[], byte[]>(topic, 0, null, null, bytes("v"), sent)).get(30, TimeUnit.SECONDS);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Header[] got = pollN(consumer, 1).get(0).headers().toArray();
            Check.equal("headers", Arrays.asList(got), sent);
        }
    }

    private void manyBatches() throws Exception {
        String topic = topic("many", 1);
        int n = 20000;
        byte[] filler = new byte[200];
        try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", "5", "compression.type", "lz4")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < n; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, bytes("" + i), filler)));
            }
            for (int i = 0; i < n; i++) {
                Check.equal("offset", sent.get(i).get(30, TimeUnit.SECONDS).offset(), (long) i);
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("check.crcs", "true")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            int i = 0;
            for (ConsumerRecord<byte[], byte[]> r : pollN(consumer, n)) {
                Check.equal("offset", r.offset(), (long) i);
                Check.equal("key", text(r.key()), "" + i);
                i++;
            }
        }
    }

    private void partitionByKey() throws Exception {
        String topic = topic("keys", 5);
        Map<String, Integer> where = new HashMap<>();
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int i = 0; i < 100; i++) {
                String key = "key" + i % 20;
                int partition = producer.send(new ProducerRecord<>(topic, bytes(key), bytes("" + i))).get(30, TimeUnit.SECONDS).partition();
                Check.equal("partition of " + key, where.computeIfAbsent(key, k -> partition), partition);
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> all = new ArrayList<>();
            for (int p = 0; p < 5; p++) {
                all.add(new TopicPartition(topic, p));
            }
            consumer.assign(all);
            for (ConsumerRecord<byte[], byte[]> r : pollN(consumer, 100)) {
                Check.equal("partition of " + text(r.key()), r.partition(), where.get(text(r.key())));
            }
        }
    }

    private void outOfRange() throws Exception {
        String topic = topic("out-of-range", 1);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer("batch.size", "0")) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("v" + i)));
            }
            producer.flush();
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Check.equal("low watermark", admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(tp).get(30, TimeUnit.SECONDS).lowWatermark(), 4L);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(tp));
            consumer.seek(tp, 1);
            Check.fails("below the start", OffsetOutOfRangeException.class, () -> {
                for (int i = 0; i < 50; i++) {
                    consumer.poll(Duration.ofMillis(200));
                }
            });
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(tp));
            consumer.seek(tp, 100);
            Check.equal("reset to the earliest", pollN(consumer, 6).get(0).offset(), 4L);
        }
    }

    private void tooLarge() throws Exception {
        String topic = topic("too-large", 1, "max.message.bytes", "10000");
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            Check.fails("too large", RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, 0, null, new byte[20000])).get(30, TimeUnit.SECONDS));
            Check.equal("the next one", producer.send(new ProducerRecord<>(topic, 0, null, new byte[100])).get(30, TimeUnit.SECONDS).offset(), 0L);
        }
    }

    private void logAppendTime() throws Exception {
        String topic = topic("log-append-time", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        RecordMetadata md;
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            md = producer.send(new ProducerRecord<>(topic, 0, 5L, null, bytes("v"))).get(30, TimeUnit.SECONDS);
            Check.isTrue("the broker's time is answered", md.timestamp() >= before && md.timestamp() <= System.currentTimeMillis());
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            ConsumerRecord<byte[], byte[]> r = pollN(consumer, 1).get(0);
            Check.equal("timestamp", r.timestamp(), md.timestamp());
            Check.equal("timestamp type", r.timestampType().name, "LogAppendTime");
        }
    }

    /** The topic PREFIX.given holds transactions; records that count have a value that begins with "commit". */
    private void givenTransactions() throws Exception {
        TopicPartition tp = new TopicPartition(prefix + ".given", 0);
        try (KafkaConsumer<byte[], byte[]> all = consumer(); KafkaConsumer<byte[], byte[]> committed = consumer("isolation.level", "read_committed")) {
            long end = all.endOffsets(List.of(tp)).get(tp);
            all.assign(List.of(tp));
            List<String> want = new ArrayList<>();
            while (all.position(tp) < end) {
                for (ConsumerRecord<byte[], byte[]> r : all.poll(Duration.ofMillis(200))) {
                    if (text(r.value()).startsWith("commit")) {
                        want.add(r.offset() + " " + text(r.value()));
                    }
                }
            }
            Check.equal("end offset under read_committed", committed.endOffsets(List.of(tp)).get(tp), end);
            committed.assign(List.of(tp));
            List<String> got = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> r : pollN(committed, want.size())) {
                got.add(r.offset() + " " + text(r.value()));
            }
            Check.equal("committed records", got, want);
            while (committed.position(tp) < end) {
                Check.equal("records behind the last committed one", committed.poll(Duration.ofMillis(200)).count(), 0);
            }
        }
    }

    private void codec(String codec) throws Exception {
        String topic = topic("codec-" + codec, 1);
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec, "linger.ms", "20")) {
            for (int i = 0; i < 1000; i++) {
                producer.send(new ProducerRecord<>(topic, 0, bytes("k" + i), bytes(String.join(",", Collections.nCopies(20, "v" + i)))));
            }
            producer.flush();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            int i = 0;
            for (ConsumerRecord<byte[], byte[]> r : pollN(consumer, 1000)) {
                Check.equal("key", text(r.key()), "k" + i);
                Check.equal("value", text(r.value()), String.join(",", Collections.nCopies(20, "v" + i)));
                i++;
            }
        }
    }

    private void acks(String acks) throws Exception {
        String topic = topic("acks-" + acks, 1);
        try (KafkaProducer<byte[], byte[]> producer = producer("acks", acks, "enable.idempotence", acks.equals("all") ? "true" : "false")) {
            for (int i = 0; i < 10; i++) {
                RecordMetadata md = producer.send(new ProducerRecord<>(topic, 0, null, bytes("v" + i))).get(30, TimeUnit.SECONDS);
                Check.equal("offset", md.offset(), acks.equals("0") ? -1L : i);
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Check.equal("last", text(pollN(consumer, 10).get(9).value()), "v9");
        }
    }
}
