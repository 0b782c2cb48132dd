package kbroker;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One program that runs on while the caller kills the leader of its topic and then the coordinator of its group. The
 * topic is PREFIX itself; after "STEP n" is printed it waits for the file go-n.
 */
final class ClusterCases {
    private static final int BATCH = 50;

    private final String bootstrap;
    private final String topic;
    private final Path dir;

    ClusterCases(String bootstrap, String topic, Path dir) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.dir = dir;
    }

    void addTo(Map<String, Check.Action> cases) {
        cases.put("given-cluster", this::run);
        cases.put("given-moved", this::moved);
    }

    private void step(int n) throws Exception {
        System.out.println("STEP " + n);
        System.out.flush();
        long deadline = System.nanoTime() + 120_000_000_000L;
        while (!Files.exists(dir.resolve("go-" + n))) {
            Check.isTrue("nobody said go", System.nanoTime() < deadline);
            Thread.sleep(20);
        }
    }

    private KafkaConsumer<String, String> consumer() {
        return consumer(Map.of("session.timeout.ms", "10000", "heartbeat.interval.ms", "500"));
    }

    private KafkaConsumer<String, String> consumer(Map<String, String> settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        config.put("group.id", topic + ".g");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.putAll(settings);
        return new KafkaConsumer<>(config);
    }

    private KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap, "key.serializer", StringSerializer.class.getName(),
                "value.serializer", StringSerializer.class.getName(), "acks", "all", "request.timeout.ms", "5000", "delivery.timeout.ms", "60000"));
    }

    private void produce(KafkaProducer<String, String> producer, int round) throws Exception {
        for (int i = round * BATCH; i < (round + 1) * BATCH; i++) {
            RecordMetadata md = producer.send(new ProducerRecord<>(topic, 0, "k" + i, "v" + i)).get(60, TimeUnit.SECONDS);
            Check.equal("offset", md.offset(), (long) i);
        }
    }

    /**
     * A group of the consumer protocol, while the caller has its coordinator move to a broker without that protocol, and
     * back: the member is told that its protocol is not supported; one of the classic protocol goes on where it was, and
     * after the move back one of the consumer protocol where that was.
     */
    private void moved() throws Exception {
        Map<String, String> newer = Map.of("group.protocol", "consumer");
        try (KafkaProducer<String, String> producer = producer()) {
            produce(producer, 0);
            try (KafkaConsumer<String, String> consumer = consumer(newer)) {
                round(consumer, 0);
                step(1);
                Check.fails("poll", UnsupportedVersionException.class, () -> {
                    long deadline = System.nanoTime() + 60_000_000_000L;
                    while (System.nanoTime() < deadline) {
                        Check.equal("records", consumer.poll(Duration.ofMillis(100)).count(), 0);
                    }
                });
            }
            produce(producer, 1);
            try (KafkaConsumer<String, String> consumer = consumer()) {
                round(consumer, 1);
                step(2);
            }
            produce(producer, 2);
            step(3);
            try (KafkaConsumer<String, String> consumer = consumer(newer)) {
                round(consumer, 2);
                step(4);
            }
        }
    }

    /** Reads and commits what was produced in one round, from where the group was. */
    private void round(KafkaConsumer<String, String> consumer, int round) {
        TopicPartition tp = new TopicPartition(topic, 0);
        consumer.subscribe(List.of(topic));
        read(consumer, round * BATCH, (round + 1) * BATCH);
        OffsetAndMetadata before = consumer.committed(Set.of(tp), Duration.ofSeconds(30)).get(tp);
        Check.equal("committed before", before == null ? 0L : before.offset(), (long) round * BATCH);
        consumer.commitSync(Map.of(tp, new OffsetAndMetadata((round + 1) * BATCH, "round " + round)), Duration.ofSeconds(30));
    }

    private void run() throws Exception {
        TopicPartition tp = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(); KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of(topic));
            for (int round = 0; round < 3; round++) {
                int end = (round + 1) * BATCH;
                produce(producer, round);
                read(consumer, round * BATCH, end);
                Check.equal("assignment", consumer.assignment(), Set.of(tp));
                Check.equal("position", consumer.position(tp, Duration.ofSeconds(30)), (long) end);
                Check.equal("end", consumer.endOffsets(List.of(tp), Duration.ofSeconds(30)).get(tp), (long) end);
                OffsetAndMetadata before = consumer.committed(Set.of(tp), Duration.ofSeconds(30)).get(tp);
                Check.equal("committed before", before == null ? 0L : before.offset(), (long) round * BATCH);
                commit(consumer, tp, end);
                OffsetAndMetadata now = consumer.committed(Set.of(tp), Duration.ofSeconds(30)).get(tp);
                Check.equal("committed", now.offset() + " " + now.metadata(), end + " round " + round);
                step(round + 1);
            }
        }
        // Who comes next starts where the other one stopped: there is nothing left to read.
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (consumer.assignment().isEmpty() && System.nanoTime() < deadline) {
                Check.equal("records", consumer.poll(Duration.ofMillis(100)).count(), 0);
            }
            Check.equal("position", consumer.position(tp, Duration.ofSeconds(30)), 3L * BATCH);
        }
    }

    private void read(KafkaConsumer<String, String> consumer, int from, int end) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        int next = from;
        while (next < end && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                Check.equal("record", r.offset() + " " + r.key() + " " + r.value(), next + " k" + next + " v" + next);
                next++;
            }
        }
        Check.equal("records read", next, end);
    }

    /** Commits asynchronously; a commit that a moving coordinator refused is repeated, as a program would. */
    private void commit(KafkaConsumer<String, String> consumer, TopicPartition tp, int end) {
        OffsetAndMetadata what = new OffsetAndMetadata(end, "round " + (end / BATCH - 1));
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (true) {
            AtomicReference<Object> said = new AtomicReference<>();
            consumer.commitAsync(Map.of(tp, what), (offsets, error) -> said.set(error == null ? offsets : error));
            while (said.get() == null && System.nanoTime() < deadline) {
                Check.equal("records", consumer.poll(Duration.ofMillis(50)).count(), 0);
            }
            if (!(said.get() instanceof org.apache.kafka.clients.consumer.RetriableCommitFailedException) || System.nanoTime() > deadline) {
                Check.equal("commitAsync", said.get(), Map.of(tp, what));
                return;
            }
        }
    }
}
