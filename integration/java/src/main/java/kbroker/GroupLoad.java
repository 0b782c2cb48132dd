package kbroker;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A group of three members that read a topic and commit what they have read. It holds whatever happens to the cluster and
 * to the members: no record is skipped, and a committed offset that was acknowledged is neither lost nor turned back.
 */
final class GroupLoad {
    private static final int MEMBERS = 3;
    private static final int PARTITIONS = 6; // of the topic that is made here
    private static final Map<String, String> CONSUMER = Map.of("group.protocol", "consumer");

    private final String bootstrap;
    private String topic;
    private final Path dir;

    // Guarded by this.
    private final Map<Integer, Long> next = new HashMap<>(); // behind the highest offset that was read
    private final Map<Integer, Long> acked = new TreeMap<>();
    private final Map<Integer, Long> written = new TreeMap<>();
    private final Map<String, Integer> refused = new TreeMap<>();
    private final List<String> faults = new ArrayList<>();
    private int looks;

    private volatile boolean stopWriting;
    private volatile boolean stopped;

    GroupLoad(String bootstrap, String topic, Path dir) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.dir = dir;
    }

    void addTo(Map<String, Check.Action> cases) {
        cases.put("given-load", this::run);
        cases.put("group-moves-range", () -> moves("Range"));
        cases.put("group-moves-cooperative", () -> moves("CooperativeSticky"));
    }

    /** Members of a group of the classic protocol are restarted one by one with the consumer protocol, and back. */
    private void moves(String assignor) throws Exception {
        String prefix = topic;
        topic = prefix + ".moves-" + assignor;
        Map<String, String> classic = Map.of("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor + "Assignor",
                "session.timeout.ms", "20000", "heartbeat.interval.ms", "200");
        Member[] members = new Member[MEMBERS];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get(30, TimeUnit.SECONDS);
            Thread writer = new Thread(this::write, "write");
            Thread watch = new Thread(this::watch, "watch");
            writer.start();
            watch.start();
            for (int i = 0; i < MEMBERS; i++) {
                members[i] = new Member(classic).start("classic-" + i);
            }
            goesOn(members);
            Check.equal("type", type(admin), "Classic");
            for (int i = 0; i < MEMBERS; i++) {
                members[i].leave();
                members[i] = new Member(CONSUMER).start("consumer-" + i);
                goesOn(members);
                Check.equal("type after " + (i + 1) + " restarts", type(admin), "Consumer");
            }
            for (int i = 0; i < MEMBERS; i++) {
                members[i].leave();
                members[i] = new Member(classic).start("classic-again-" + i);
                goesOn(members);
                Check.equal("type after " + (i + 1) + " restarts back", type(admin), i < MEMBERS - 1 ? "Consumer" : "Classic");
            }
            stopWriting = true;
            writer.join();
            goesOn(members);
            stopped = true;
            for (Member m : members) {
                m.leave();
            }
            watch.join();
            for (int p = 0; p < PARTITIONS; p++) {
                OffsetAndMetadata at = admin.listConsumerGroupOffsets(topic + ".g").partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, p));
                Check.equal("committed of " + p, at.offset(), written.get(p));
            }
            report();
            Check.equal("read", next, written);
        } finally {
            stopWriting = true;
            stopped = true;
            topic = prefix;
        }
    }

    private String type(Admin admin) throws Exception {
        for (ConsumerGroupListing l : admin.listConsumerGroups().all().get(30, TimeUnit.SECONDS)) {
            if (l.groupId().equals(topic + ".g")) {
                return l.type().map(String::valueOf).orElse("none");
            }
        }
        return "not listed";
    }

    /** Waits until every member has partitions, and all that had been written by then is committed. */
    private void goesOn(Member... members) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        Map<Integer, Long> want = null;
        while (true) {
            synchronized (this) {
                int owned = 0;
                boolean all = true;
                for (Member m : members) {
                    owned += m.owned.size();
                    all &= !m.owned.isEmpty();
                }
                if (want == null && all && owned == PARTITIONS) {
                    want = new HashMap<>(written);
                }
                if (want != null && want.entrySet().stream().allMatch(e -> acked.getOrDefault(e.getKey(), 0L) >= e.getValue())) {
                    return;
                }
                if (!faults.isEmpty() || System.nanoTime() > deadline) {
                    StringBuilder said = new StringBuilder();
                    for (Member m : members) {
                        said.append(' ').append(m.owned);
                    }
                    throw new AssertionError("the group does not go on: owned" + said + ", acknowledged " + acked + " of " + want + ", " + faults);
                }
            }
            Thread.sleep(20);
        }
    }

    private void write() {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "key.serializer", ByteArraySerializer.class.getName(),
                "value.serializer", ByteArraySerializer.class.getName(), "acks", "all");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            while (!stopWriting) {
                for (int p = 0; p < PARTITIONS; p++) {
                    long offset = producer.send(new ProducerRecord<>(topic, p, null, new byte[10])).get().offset();
                    synchronized (this) {
                        written.put(p, offset + 1);
                    }
                }
                Thread.sleep(5);
            }
        } catch (Exception e) {
            fault("write: " + e);
        }
    }

    private void report() {
        synchronized (this) {
            System.out.println("acknowledged " + acked + ", refused " + refused + ", looked " + looks + " times");
            Check.equal("faults", faults, List.of());
            Check.equal("committed", acked, next);
            Check.isTrue("nobody looked at the committed offsets", looks > 0);
        }
    }

    /** Under the consumer protocol, until the caller makes the file "stop". The topic is PREFIX. */
    private void run() throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < MEMBERS; i++) {
            threads.add(new Thread(new Member(CONSUMER), "member-" + i));
        }
        threads.add(new Thread(this::watch, "watch"));
        threads.forEach(Thread::start);
        while (!Files.exists(dir.resolve("stop")) && threads.stream().allMatch(Thread::isAlive)) {
            Thread.sleep(20);
        }
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        report();
    }

    private synchronized void fault(String what) {
        if (faults.size() < 20) {
            faults.add(what);
        }
    }

    private synchronized Map<Integer, Long> snapshot() {
        return new HashMap<>(acked);
    }

    /** Reads the committed offsets again and again. */
    private void watch() {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            while (!stopped) {
                Map<Integer, Long> floor = snapshot();
                try {
                    Map<TopicPartition, OffsetAndMetadata> now = admin.listConsumerGroupOffsets(topic + ".g").partitionsToOffsetAndMetadata().get(10, TimeUnit.SECONDS);
                    floor.forEach((p, want) -> {
                        OffsetAndMetadata at = now.get(new TopicPartition(topic, p));
                        if (at == null || at.offset() < want) {
                            fault("partition " + p + ": " + at + " is committed, though a commit of " + want + " was acknowledged before");
                        }
                    });
                    synchronized (this) {
                        looks++;
                    }
                    Thread.sleep(50);
                } catch (InterruptedException e) {
                    return;
                } catch (Exception e) {
                    // The coordinator is away or loads.
                }
            }
        }
    }

    private final class Member implements Runnable, ConsumerRebalanceListener {
        private final Map<String, String> settings;
        private final Map<Integer, Long> floor = new HashMap<>(); // acknowledged when the partition was given, until its first record
        private final Set<Integer> owned = new HashSet<>(); // guarded by GroupLoad.this
        private volatile boolean leaving;
        private Thread thread;

        Member(Map<String, String> settings) {
            this.settings = settings;
        }

        Member start(String name) {
            thread = new Thread(this, name);
            thread.start();
            return this;
        }

        void leave() throws InterruptedException {
            leaving = true;
            thread.join();
        }

        @Override
        public void run() {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", topic + ".g",
                    "key.deserializer", ByteArrayDeserializer.class.getName(), "value.deserializer", ByteArrayDeserializer.class.getName(),
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false", "retry.backoff.ms", "50", "max.poll.records", "100"));
            config.putAll(settings);
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
                consumer.subscribe(List.of(topic), this);
                while (!stopped && !leaving) {
                    Map<TopicPartition, OffsetAndMetadata> commit = new HashMap<>();
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
                        take(r);
                        commit.put(new TopicPartition(topic, r.partition()), new OffsetAndMetadata(r.offset() + 1));
                    }
                    if (!commit.isEmpty()) {
                        commit(consumer, commit);
                    }
                }
            } catch (Throwable e) {
                fault(Thread.currentThread().getName() + " ended: " + e);
            }
        }

        private void commit(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> commit) {
            try {
                consumer.commitSync(commit, Duration.ofSeconds(5));
            } catch (CommitFailedException | RebalanceInProgressException | RetriableException e) {
                synchronized (GroupLoad.this) {
                    refused.merge(e.getClass().getSimpleName(), 1, Integer::sum);
                }
                return;
            } catch (KafkaException e) {
                fault("commit: " + e);
                return;
            }
            synchronized (GroupLoad.this) {
                commit.forEach((tp, o) -> {
                    long before = acked.getOrDefault(tp.partition(), 0L);
                    if (o.offset() < before) {
                        fault(tp + ": a commit of " + o.offset() + " was taken after one of " + before);
                    }
                    acked.put(tp.partition(), Math.max(before, o.offset()));
                });
            }
        }

        private void take(ConsumerRecord<byte[], byte[]> r) {
            synchronized (GroupLoad.this) {
                Long first = floor.remove(r.partition());
                if (first != null && r.offset() < first) {
                    fault("partition " + r.partition() + " was begun at " + r.offset() + ", though " + first + " was committed");
                }
                long due = next.getOrDefault(r.partition(), 0L);
                if (r.offset() > due) {
                    fault("partition " + r.partition() + ": offset " + r.offset() + " was read where " + due + " is due");
                }
                next.put(r.partition(), Math.max(due, r.offset() + 1));
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            Map<Integer, Long> now = snapshot();
            for (TopicPartition tp : partitions) {
                floor.put(tp.partition(), now.getOrDefault(tp.partition(), 0L));
                synchronized (GroupLoad.this) {
                    owned.add(tp.partition());
                }
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            Set<Integer> gone = new HashSet<>();
            partitions.forEach(tp -> gone.add(tp.partition()));
            floor.keySet().removeAll(gone);
            synchronized (GroupLoad.this) {
                owned.removeAll(gone);
            }
        }
    }
}
