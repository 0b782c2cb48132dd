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
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        config.put("group.id", topic + ".g");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("session.timeout.ms", "10000");
        config.put("heartbeat.interval.ms", "500");
        return new KafkaConsumer<>(config);
    }

    private void run() throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "key.serializer", StringSerializer.class.getName(),
                "value.serializer", StringSerializer.class.getName(), "acks", "all", "request.timeout.ms", "5000", "delivery.timeout.ms", "60000");
        TopicPartition tp = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config); KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of(topic));
            for (int round = 0; round < 3; round++) {
                int end = (round + 1) * BATCH;
                for (int i = round * BATCH; i < end; i++) {
                    RecordMetadata md = producer.send(new ProducerRecord<>(topic, 0, "k" + i, "v" + i)).get(60, TimeUnit.SECONDS);
                    Check.equal("offset", md.offset(), (long) i);
                }
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
