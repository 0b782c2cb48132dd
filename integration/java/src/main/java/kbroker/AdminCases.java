package kbroker;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;

/** The admin client: create, describe, alter, delete. */
final class AdminCases {
    private final String bootstrap;
    private final String prefix;

    AdminCases(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
    }

    void addTo(Map<String, Check.Action> cases) {
        cases.put("admin-topics", () -> with(this::topics));
        cases.put("admin-errors", () -> with(this::errors));
        cases.put("admin-configs", () -> with(this::configs));
        cases.put("admin-offsets", () -> with(this::offsets));
        cases.put("admin-cluster", () -> with(this::cluster));
    }

    interface AdminCase {
        void run(Admin admin) throws Exception;
    }

    private void with(AdminCase c) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", "15000", "default.api.timeout.ms", "30000"))) {
            c.run(admin);
        }
    }

    private void topics(Admin admin) throws Exception {
        String topic = prefix + ".admin-topics";
        CreateTopicsResult made = admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "7777"))));
        Check.equal("partitions", made.numPartitions(topic).get(), 2);
        Check.equal("replication factor", made.replicationFactor(topic).get(), 1);
        Uuid id = made.topicId(topic).get();
        Check.equal("config in the answer", made.config(topic).get().get("retention.ms").value(), "7777");

        Check.eventually(() -> {
            TopicDescription d = admin.describeTopics(List.of(topic), new DescribeTopicsOptions()).allTopicNames().get().get(topic);
            Check.equal("id", d.topicId(), id);
            Check.equal("partitions", d.partitions().size(), 2);
            Check.equal("internal", d.isInternal(), false);
            d.partitions().forEach(p -> {
                Check.equal("leader", p.leader() == null ? -1 : p.leader().id(), 1);
                Check.equal("in sync", p.isr().size(), 1);
            });
        });
        Check.equal("by id", admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name(), topic);
        Check.isTrue("listed", admin.listTopics().names().get().contains(topic));

        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        Check.eventually(() -> Check.equal("partitions", describe(admin, topic).partitions().size(), 4));

        admin.deleteTopics(List.of(topic)).all().get();
        Check.eventually(() -> Check.isTrue("gone", !admin.listTopics().names().get().contains(topic)));
        Check.fails("describe", UnknownTopicOrPartitionException.class, () -> describe(admin, topic));

        // The name may be taken for a moment longer, until the deletion is through.
        Uuid[] again = new Uuid[1];
        Check.eventually(() -> again[0] = admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).topicId(topic).get());
        Check.isTrue("a new id", !again[0].equals(id));
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(again[0]))).all().get();
        Check.eventually(() -> Check.isTrue("gone", !admin.listTopics().names().get().contains(topic)));
    }

    private static TopicDescription describe(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private void errors(Admin admin) throws Exception {
        String topic = prefix + ".admin-errors";
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
        Check.fails("again", TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
        Check.fails("too many replicas", InvalidReplicationFactorException.class, () -> admin.createTopics(List.of(new NewTopic(topic + ".rf", 1, (short) 3))).all().get());
        Check.fails("no partitions", InvalidPartitionsException.class, () -> admin.createTopics(List.of(new NewTopic(topic + ".p", 0, (short) 1))).all().get());
        Check.fails("bad name", InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all().get());
        Check.fails("bad config", InvalidConfigurationException.class, () -> admin.createTopics(List.of(new NewTopic(topic + ".c", 1, (short) 1).configs(Map.of("retention.ms", "x")))).all().get());
        Check.fails("fewer partitions", InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get());
        Check.fails("delete the unknown", UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(topic + ".no")).all().get());
        Check.fails("alter the unknown", UnknownTopicOrPartitionException.class, () -> alter(admin, topic + ".no", "retention.ms", "1", AlterConfigOp.OpType.SET));
        Check.fails("alter badly", InvalidConfigurationException.class, () -> alter(admin, topic, "retention.ms", "x", AlterConfigOp.OpType.SET));
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static void alter(Admin admin, String topic, String key, String value, AlterConfigOp.OpType type) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> ops = new HashMap<>();
        ops.put(resource(topic), List.of(new AlterConfigOp(new ConfigEntry(key, value), type)));
        admin.incrementalAlterConfigs(ops).all().get();
    }

    private void wantConfig(Admin admin, String topic, String key, String value, ConfigEntry.ConfigSource source) throws Exception {
        Check.eventually(() -> {
            Config config = admin.describeConfigs(List.of(resource(topic))).all().get().get(resource(topic));
            Check.equal(key, config.get(key).value(), value);
            Check.equal("source of " + key, config.get(key).source(), source);
        });
    }

    private void configs(Admin admin) throws Exception {
        String topic = prefix + ".admin-configs";
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        wantConfig(admin, topic, "cleanup.policy", "delete", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
        alter(admin, topic, "retention.ms", "4444", AlterConfigOp.OpType.SET);
        wantConfig(admin, topic, "retention.ms", "4444", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(admin, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        wantConfig(admin, topic, "cleanup.policy", "delete,compact", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alter(admin, topic, "retention.ms", null, AlterConfigOp.OpType.DELETE);
        wantConfig(admin, topic, "retention.ms", "604800000", ConfigEntry.ConfigSource.DEFAULT_CONFIG);

        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config config = admin.describeConfigs(List.of(broker), all).all().get().get(broker);
        ConfigEntry listeners = config.get("listeners");
        Check.equal("listeners come from", listeners.source(), ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG);
        Check.isTrue("documentation", listeners.documentation() != null && !listeners.documentation().isEmpty());
        ConfigEntry max = config.get("message.max.bytes");
        Check.equal("message.max.bytes", max.value(), "1048588");
        Check.equal("its type", max.type(), ConfigEntry.ConfigType.INT);
        Check.equal("read-only", max.isReadOnly(), false);
        Check.equal("broker.id is read-only", config.get("broker.id").isReadOnly(), true);
    }

    private void offsets(Admin admin) throws Exception {
        String topic = prefix + ".admin-offsets";
        TopicPartition tp = new TopicPartition(topic, 0);
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        long now = System.currentTimeMillis();
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "key.serializer", StringSerializer.class.getName(), "value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            long[] times = {now, now + 900, now + 300};
            for (long time : times) {
                producer.send(new ProducerRecord<>(topic, 0, time, null, "v")).get(30, TimeUnit.SECONDS);
            }
        }
        wantOffset(admin, tp, OffsetSpec.earliest(), 0);
        wantOffset(admin, tp, OffsetSpec.latest(), 3);
        wantOffset(admin, tp, OffsetSpec.maxTimestamp(), 1);
        wantOffset(admin, tp, OffsetSpec.forTimestamp(now + 1), 1);
        wantOffset(admin, tp, OffsetSpec.forTimestamp(now + 1000), -1);
        List<ProducerState> producers = admin.describeProducers(List.of(tp)).all().get().get(tp).activeProducers();
        Check.equal("producers", producers.size(), 1);
        Check.equal("last sequence", producers.get(0).lastSequence(), 2);
        Check.equal("open transaction", producers.get(0).currentTransactionStartOffset().isPresent(), false);
    }

    private static void wantOffset(Admin admin, TopicPartition tp, OffsetSpec spec, long want) throws Exception {
        ListOffsetsResultInfo got = admin.listOffsets(Map.of(tp, spec)).all().get().get(tp);
        Check.equal(spec.getClass().getSimpleName(), got.offset(), want);
    }

    private void cluster(Admin admin) throws Exception {
        Check.equal("controller", admin.describeCluster().controller().get().id(), 1);
        Check.equal("cluster id", admin.describeCluster().clusterId().get().length(), 22);
        Collection<Node> nodes = admin.describeCluster().nodes().get();
        Check.equal("nodes", nodes.size(), 1);
        Node node = nodes.iterator().next();
        Check.equal("address", node.host() + ":" + node.port(), bootstrap);
        Map<String, LogDirDescription> dirs = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        Check.equal("log dirs", dirs.size(), 1);
        LogDirDescription dir = dirs.values().iterator().next();
        Check.equal("error", dir.error(), null);
        Check.isTrue("total bytes", dir.totalBytes().isPresent() && dir.totalBytes().getAsLong() > 0);
    }
}
