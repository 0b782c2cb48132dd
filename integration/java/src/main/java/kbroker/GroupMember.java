package kbroker;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group that remembers what its listener was told and what it read. */
final class GroupMember implements ConsumerRebalanceListener, AutoCloseable {
    final KafkaConsumer<byte[], byte[]> consumer;
    final List<String> events = new ArrayList<>();
    final List<String> values = new ArrayList<>();
    private final Set<String> owned = new TreeSet<>();
    private final Map<TopicPartition, Long> next = new HashMap<>();
    private boolean closed;

    GroupMember(String bootstrap, String group, boolean classic, String... settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("metadata.max.age.ms", "1000");
        config.put("retry.backoff.ms", "50");
        if (classic) {
            config.put("session.timeout.ms", "20000"); // a busy machine may be silent for seconds
            config.put("heartbeat.interval.ms", "200");
        } else {
            config.put("group.protocol", "consumer");
        }
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        consumer = new KafkaConsumer<>(config);
    }

    GroupMember subscribe(String... topics) {
        consumer.subscribe(List.of(topics), this);
        return this;
    }

    GroupMember subscribe(Pattern pattern) {
        consumer.subscribe(pattern, this);
        return this;
    }

    /** The newer client's regular expression that the broker resolves; the older client has no such method. */
    GroupMember subscribeBroker(String pattern) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
        Object value = type.getConstructor(String.class).newInstance(pattern);
        KafkaConsumer.class.getMethod("subscribe", type, ConsumerRebalanceListener.class).invoke(consumer, value, this);
        return this;
    }

    private static Set<String> names(Collection<TopicPartition> partitions) {
        Set<String> out = new TreeSet<>();
        for (TopicPartition tp : partitions) {
            out.add(tp.topic().substring(tp.topic().lastIndexOf('.') + 1) + "-" + tp.partition());
        }
        return out;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        events.add("+" + names(partitions));
        for (String name : names(partitions)) {
            Check.isTrue(name + " is given twice", owned.add(name));
        }
        for (TopicPartition tp : partitions) {
            next.put(tp, consumer.position(tp));
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        events.add("-" + names(partitions));
        taken(partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        // The 3.9 client may lose under the consumer protocol what it had not told of yet.
        events.add("lost" + names(partitions));
        owned.removeAll(names(partitions));
        next.keySet().removeAll(partitions);
    }

    private void taken(Collection<TopicPartition> partitions) {
        for (String name : names(partitions)) {
            Check.isTrue(name + " is taken but was not given", owned.remove(name));
        }
        next.keySet().removeAll(partitions);
    }

    /** What the listener says is owned. */
    Set<String> owned() {
        return new TreeSet<>(owned);
    }

    /** The client says so too; under the consumer protocol it may come to it a moment after the listener. */
    boolean agrees() {
        return names(consumer.assignment()).equals(owned);
    }

    /** Polls once; every record must come at the offset that is due. */
    int poll(int millis) {
        int n = 0;
        for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(millis))) {
            TopicPartition tp = new TopicPartition(r.topic(), r.partition());
            Check.equal("offset in " + tp, r.offset(), next.get(tp));
            next.put(tp, r.offset() + 1);
            values.add(new String(r.value(), UTF_8));
            n++;
        }
        return n;
    }

    void pollUntil(int records) {
        long deadline = System.nanoTime() + 30_000_000_000L;
        int n = 0;
        while (n < records && System.nanoTime() < deadline) {
            n += poll(100);
        }
        Check.equal("records polled", n, records);
    }

    /** What is committed for the topic's partitions, as offsets. */
    Map<Integer, Long> committed(String topic, int partitions) {
        Map<Integer, Long> out = new TreeMap<>();
        Set<TopicPartition> all = new java.util.HashSet<>();
        for (int p = 0; p < partitions; p++) {
            all.add(new TopicPartition(topic, p));
        }
        for (Map.Entry<TopicPartition, OffsetAndMetadata> e : consumer.committed(all).entrySet()) {
            if (e.getValue() != null) {
                out.put(e.getKey().partition(), e.getValue().offset());
            }
        }
        return out;
    }

    /** Leaves the group; a second call does nothing. */
    @Override
    public void close() {
        if (!closed) {
            closed = true;
            consumer.close();
        }
    }

    interface Condition {
        boolean holds();
    }

    /** Polls every member in turn until the condition holds. */
    static void settle(String what, Condition condition, GroupMember... members) {
        long deadline = System.nanoTime() + 40_000_000_000L;
        while (true) {
            for (GroupMember m : members) {
                m.poll(20);
            }
            if (condition.holds()) {
                return;
            }
            if (System.nanoTime() > deadline) {
                StringBuilder said = new StringBuilder();
                for (GroupMember m : members) {
                    said.append(' ').append(m.events);
                }
                throw new AssertionError("waited in vain: " + what + ":" + said);
            }
        }
    }
}
