package kbroker;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Consumers in groups, under the classic protocol or the consumer protocol. */
final class GroupCases {
    private static final String STRATEGY = "partition.assignment.strategy";

    private final String bootstrap;
    private final String prefix;
    private final boolean classic;

    GroupCases(String bootstrap, String prefix, boolean classic) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.classic = classic;
    }

    void addTo(Map<String, Check.Action> cases) {
        String kind = classic ? "group-classic-" : "group-consumer-";
        cases.put(kind + "commits", this::commits);
        cases.put(kind + "no-offset", this::noOffset);
        cases.put(kind + "auto-commit", this::autoCommit);
        cases.put(kind + "pattern", this::pattern);
        cases.put(kind + "static", this::staticMembers);
        cases.put(kind + "max-poll-interval", this::maxPollInterval);
        cases.put(kind + "admin", this::administration);
        if (classic) {
            for (String assignor : new String[] {"Range", "RoundRobin", "Sticky", "CooperativeSticky"}) {
                cases.put(kind + "assignor-" + assignor, () -> members(assignor, STRATEGY, "org.apache.kafka.clients.consumer." + assignor + "Assignor"));
            }
            cases.put(kind + "fenced", this::fenced);
            cases.put(kind + "to-cooperative", this::toCooperative);
        } else {
            cases.put(kind + "assignor-uniform", () -> members("uniform", "group.remote.assignor", "uniform"));
            cases.put(kind + "assignor-range", () -> members("range", "group.remote.assignor", "range"));
            cases.put("group-newest-broker-pattern", this::brokerPattern);
        }
    }

    private String name(String of) {
        return prefix + (classic ? ".classic-" : ".consumer-") + of;
    }

    private GroupMember member(String group, String... settings) {
        return new GroupMember(bootstrap, group, classic, settings);
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", "15000"));
    }

    private String topic(String topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get(30, TimeUnit.SECONDS);
        }
        return topic;
    }

    /** So many records in each partition, with values "topic-partition/number". */
    private void fill(String topic, int partitions, int each) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "key.serializer", ByteArraySerializer.class.getName(), "value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            for (int i = 0; i < each; i++) {
                for (int p = 0; p < partitions; p++) {
                    producer.send(new ProducerRecord<>(topic, p, null, (topic + "-" + p + "/" + i).getBytes(UTF_8)));
                }
            }
            producer.flush();
        }
    }

    private void commits() throws Exception {
        String topic = topic(name("commits.t"), 3);
        String group = name("commits");
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        fill(topic, 3, 10);
        try (GroupMember m = member(group).subscribe(topic)) {
            m.pollUntil(30);
            Check.equal("owned", m.owned(), Set.of("t-0", "t-1", "t-2"));
            Check.isTrue("assignment " + m.consumer.assignment(), m.agrees());
            Check.equal("position", m.consumer.position(zero), 10L);
            Check.equal("end", m.consumer.endOffsets(List.of(one)).get(one), 10L);
            Check.equal("committed", m.committed(topic, 3), Map.of());
            m.consumer.commitSync(Map.of(zero, new OffsetAndMetadata(4, Optional.of(0), "noted")));
            Check.equal("committed", m.committed(topic, 3), Map.of(0, 4L));
            OffsetAndMetadata said = m.consumer.committed(Set.of(zero)).get(zero);
            Check.equal("metadata", said.metadata(), "noted");
            Check.equal("leader epoch", said.leaderEpoch(), Optional.of(0));

            Map<TopicPartition, OffsetAndMetadata> called = new HashMap<>();
            m.consumer.commitAsync(Map.of(one, new OffsetAndMetadata(7)), (offsets, error) -> {
                Check.equal("error of commitAsync", error, null);
                called.putAll(offsets);
            });
            Check.eventually(() -> {
                m.poll(20);
                Check.equal("the callback", called, Map.of(one, new OffsetAndMetadata(7)));
            });
            Check.equal("committed", m.committed(topic, 3), Map.of(0, 4L, 1, 7L));
            m.consumer.commitSync();
            Check.equal("committed", m.committed(topic, 3), Map.of(0, 10L, 1, 10L, 2, 10L));

            m.consumer.seek(zero, 4);
            Check.equal("position after seek", m.consumer.position(zero), 4L);
            List<String> read = new ArrayList<>();
            Check.eventually(() -> {
                m.consumer.poll(Duration.ofMillis(100)).forEach(r -> read.add(new String(r.value(), UTF_8)));
                Check.equal("read again", read.size(), 6);
            });
            Check.equal("the first of them", read.get(0), topic + "-0/4");
            m.consumer.commitSync(Map.of(zero, new OffsetAndMetadata(8)));
            ConsumerGroupMetadata meta = m.consumer.groupMetadata();
            Check.equal("group", meta.groupId(), group);
            Check.isTrue("generation " + meta.generationId(), meta.generationId() >= 1);
            Check.isTrue("member " + meta.memberId(), !meta.memberId().isEmpty());
        }
        try (GroupMember m = member(group).subscribe(topic)) {
            m.pollUntil(2);
            Check.equal("resumed", m.values, List.of(topic + "-0/8", topic + "-0/9"));
            Check.equal("position", m.consumer.position(one), 10L);
        }
        // Nothing of it concerns another group, with or without members.
        try (GroupMember m = member(group + ".other")) {
            Check.equal("committed", m.committed(topic, 3), Map.of());
            m.consumer.assign(List.of(zero));
            m.consumer.seek(zero, 5);
            m.consumer.commitSync(Map.of(zero, new OffsetAndMetadata(5)));
            Check.equal("committed", m.committed(topic, 3), Map.of(0, 5L));
        }
    }

    private void noOffset() throws Exception {
        String topic = topic(name("no-offset.t"), 1);
        fill(topic, 1, 5);
        try (GroupMember m = member(name("no-offset"), "auto.offset.reset", "none")) {
            m.consumer.subscribe(List.of(topic));
            Check.fails("poll", NoOffsetForPartitionException.class, () -> {
                long deadline = System.nanoTime() + 20_000_000_000L;
                while (System.nanoTime() < deadline) {
                    m.consumer.poll(Duration.ofMillis(200));
                }
            });
        }
        try (GroupMember m = member(name("no-offset"), "auto.offset.reset", "latest").subscribe(topic)) {
            GroupMember.settle("assigned", () -> m.owned().size() == 1, m);
            fill(topic, 1, 1);
            m.pollUntil(1);
            Check.equal("position", m.consumer.position(new TopicPartition(topic, 0)), 6L);
        }
    }

    private void autoCommit() throws Exception {
        String topic = topic(name("auto-commit.t"), 2);
        fill(topic, 2, 5);
        try (GroupMember m = member(name("auto-commit"), "enable.auto.commit", "true", "auto.commit.interval.ms", "100").subscribe(topic)) {
            m.pollUntil(10);
            Check.eventually(() -> {
                m.poll(50);
                Check.equal("committed", m.committed(topic, 2), Map.of(0, 5L, 1, 5L));
            });
            fill(topic, 2, 1);
            m.pollUntil(2);
        }
        try (GroupMember m = member(name("auto-commit"))) {
            Check.equal("committed at close", m.committed(topic, 2), Map.of(0, 6L, 1, 6L));
        }
    }

    private void pattern() throws Exception {
        String base = name("pattern");
        topic(base + ".t1", 1);
        topic(base + ".no", 1);
        try (GroupMember m = member(base).subscribe(Pattern.compile(Pattern.quote(base) + "\\.t[0-9]+"))) {
            GroupMember.settle("the first topic", () -> m.owned().equals(Set.of("t1-0")), m);
            topic(base + ".t2", 2);
            GroupMember.settle("the second topic", () -> m.owned().equals(Set.of("t1-0", "t2-0", "t2-1")), m);
        }
    }

    private void brokerPattern() throws Exception {
        String base = name("broker-pattern");
        topic(base + ".t1", 1);
        topic(base + ".no", 1);
        try (GroupMember m = member(base).subscribeBroker(base.replace(".", "\\.") + "\\.t[0-9]+")) {
            GroupMember.settle("the first topic", () -> m.owned().equals(Set.of("t1-0")), m);
            topic(base + ".t2", 2);
            GroupMember.settle("the second topic", () -> m.owned().equals(Set.of("t1-0", "t2-0", "t2-1")), m);
        }
    }

    private static List<Integer> sizes(GroupMember... members) {
        List<Integer> out = new ArrayList<>();
        for (GroupMember m : members) {
            out.add(m.owned().size());
        }
        Collections.sort(out);
        return out;
    }

    /** The members own all of the six partitions, nobody what another one owns, so many each. */
    private static boolean shared(List<Integer> want, GroupMember... members) {
        Set<String> all = new TreeSet<>();
        int n = 0;
        for (GroupMember m : members) {
            if (!m.agrees()) {
                return false;
            }
            all.addAll(m.owned());
            n += m.owned().size();
        }
        return all.size() == 6 && n == 6 && sizes(members).equals(want);
    }

    /** Two and three members of two topics with three partitions each, joining and leaving. */
    private void members(String assignor, String... settings) throws Exception {
        boolean perTopic = assignor.equalsIgnoreCase("range");
        boolean sticky = assignor.endsWith("Sticky") || assignor.equals("uniform");
        String base = name("assignor-" + assignor);
        String[] topics = {topic(base + ".a", 3), topic(base + ".b", 3)};
        int[] filled = {0};
        List<Integer> half = perTopic ? List.of(2, 4) : List.of(3, 3);
        try (GroupMember one = member(base, settings).subscribe(topics);
                GroupMember two = member(base, settings);
                GroupMember three = member(base, settings)) {
            GroupMember.settle("one has all", () -> shared(List.of(6), one), one);
            flows(topics, filled, one);
            two.subscribe(topics);
            GroupMember.settle("two share", () -> shared(half, one, two), one, two);
            flows(topics, filled, one, two);
            if (perTopic) {
                GroupMember more = one.owned().size() == 4 ? one : two;
                Check.equal("the first half", more.owned(), Set.of("a-0", "a-1", "b-0", "b-1"));
            }
            Set<String> before = one.owned();
            Set<String> others = two.owned();
            three.subscribe(topics);
            GroupMember.settle("three share", () -> shared(List.of(2, 2, 2), one, two, three), one, two, three);
            flows(topics, filled, one, two, three);
            if (sticky) {
                Check.isTrue(one.owned() + " of " + before, before.containsAll(one.owned()));
                Check.isTrue(two.owned() + " of " + others, others.containsAll(two.owned()));
            }
            two.consumer.commitSync();
            two.close();
            Set<String> kept = one.owned();
            GroupMember.settle("two are left", () -> shared(half, one, three), one, three);
            flows(topics, filled, one, three);
            if (sticky) {
                Check.isTrue(kept + " in " + one.owned(), one.owned().containsAll(kept));
            }
            one.consumer.commitSync();
            one.close();
            GroupMember.settle("one is left", () -> shared(List.of(6), three), three);
            flows(topics, filled, three);
            boolean cooperative = !classic || assignor.equals("CooperativeSticky");
            for (GroupMember m : List.of(one, two, three)) {
                Check.isTrue("lost: " + m.events, m.events.stream().noneMatch(e -> e.startsWith("lost")));
            }
            if (cooperative && assignor.equals("range")) {
                // Which partition is whose goes by the members' ids: the last one may have to swap.
            } else if (cooperative) {
                // Only what moves is taken.
                Check.equal("the last one gives nothing up: " + three.events, three.events.stream().filter(e -> e.startsWith("-") && !e.equals("-[]")).count(), 0L);
            } else {
                Check.isTrue("everything is given up: " + one.events, one.events.contains("-[a-0, a-1, a-2, b-0, b-1, b-2]"));
            }
        }
    }

    /** A record in each partition is read once, by the member that owns it, and committed. */
    private void flows(String[] topics, int[] filled, GroupMember... members) throws Exception {
        for (GroupMember m : members) {
            m.values.clear();
        }
        for (String topic : topics) {
            fill(topic, 3, 1);
        }
        filled[0]++;
        GroupMember.settle("six records are read", () -> Arrays.stream(members).mapToInt(m -> m.values.size()).sum() >= 6, members);
        List<String> got = new ArrayList<>();
        for (GroupMember m : members) {
            got.addAll(m.values);
            m.consumer.commitSync();
            for (String value : m.values) {
                String short_ = value.substring(value.lastIndexOf('.') + 1, value.lastIndexOf('/'));
                Check.isTrue(short_ + " is not of " + m.owned(), m.owned().contains(short_));
            }
        }
        Collections.sort(got);
        List<String> want = new ArrayList<>();
        for (String topic : topics) {
            for (int p = 0; p < 3; p++) {
                want.add(topic + "-" + p + "/0");
            }
        }
        StringBuilder heard = new StringBuilder();
        for (GroupMember m : members) {
            heard.append(' ').append(m.events);
        }
        Check.equal("records, by members who heard" + heard, got, want);
        for (String topic : topics) {
            long n = filled[0];
            Check.equal("committed", members[0].committed(topic, 3), Map.of(0, n, 1, n, 2, n));
        }
    }

    /** An eager group goes over to cooperative rebalancing member by member, as KIP-429 says. */
    private void toCooperative() throws Exception {
        String base = name("to-cooperative");
        String[] topics = {topic(base + ".a", 3), topic(base + ".b", 3)};
        String range = "org.apache.kafka.clients.consumer.RangeAssignor";
        String both = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor," + range;
        try (GroupMember old = member(base, STRATEGY, range).subscribe(topics);
                GroupMember one = member(base, STRATEGY, both).subscribe(topics);
                GroupMember two = member(base, STRATEGY, both)) {
            GroupMember.settle("two share", () -> shared(List.of(2, 4), old, one), old, one);
            Check.equal("protocol", describe(base).partitionAssignor(), "range");
            old.close();
            GroupMember.settle("one has all", () -> shared(List.of(6), one), one);
            two.subscribe(topics);
            GroupMember.settle("two share", () -> shared(List.of(3, 3), one, two), one, two);
            Check.equal("protocol", describe(base).partitionAssignor(), "cooperative-sticky");
        }
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        try (Admin admin = admin()) {
            return admin.describeConsumerGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
        }
    }

    private void staticMembers() throws Exception {
        String base = name("static");
        String[] topics = {topic(base + ".a", 3), topic(base + ".b", 3)};
        int[] filled = {0};
        try (GroupMember one = member(base, "group.instance.id", "i1").subscribe(topics)) {
            Set<String> before;
            int generation;
            try (GroupMember two = member(base, "group.instance.id", "i2").subscribe(topics)) {
                GroupMember.settle("two share", () -> shared(sizes(one, two), one, two) && two.owned().size() > 0, one, two);
                flows(topics, filled, one, two);
                before = two.owned();
                generation = one.consumer.groupMetadata().generationId();
            }
            int heard = one.events.size();
            try (GroupMember two = member(base, "group.instance.id", "i2").subscribe(topics)) {
                GroupMember.settle("the second is back", () -> two.owned().equals(before), one, two);
                flows(topics, filled, one, two);
                Check.equal("what the first heard meanwhile", one.events.subList(heard, one.events.size()), List.of());
                Check.equal("generation", one.consumer.groupMetadata().generationId(), generation);
            }
            try (Admin admin = admin()) {
                Set<String> ids = new TreeSet<>();
                for (MemberDescription d : describe(base).members()) {
                    ids.add(d.groupInstanceId().orElse("none"));
                }
                Check.equal("instances", ids, Set.of("i1", "i2"));
                admin.removeMembersFromConsumerGroup(base, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("i2")))).all().get(30, TimeUnit.SECONDS);
            }
            GroupMember.settle("one is left", () -> shared(List.of(6), one), one);
            flows(topics, filled, one);
        }
    }

    private void fenced() throws Exception {
        String base = name("fenced");
        String topic = topic(base + ".t", 1);
        try (GroupMember one = member(base, "group.instance.id", "i1").subscribe(topic); GroupMember again = member(base, "group.instance.id", "i1")) {
            GroupMember.settle("owned", () -> one.owned().size() == 1, one);
            again.subscribe(topic);
            GroupMember.settle("taken over", () -> again.owned().size() == 1, again);
            Check.fails("commit", FencedInstanceIdException.class, () -> one.consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1))));
            Check.fails("poll", FencedInstanceIdException.class, () -> {
                long deadline = System.nanoTime() + 20_000_000_000L;
                while (System.nanoTime() < deadline) {
                    one.consumer.poll(Duration.ofMillis(100));
                }
            });
            again.consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(2)));
            Check.equal("committed", again.committed(topic, 1), Map.of(0, 2L));
        }
    }

    private void maxPollInterval() throws Exception {
        String base = name("max-poll-interval");
        String[] topics = {topic(base + ".a", 3), topic(base + ".b", 3)};
        try (GroupMember slow = member(base, "max.poll.interval.ms", "2000").subscribe(topics); GroupMember quick = member(base).subscribe(topics)) {
            GroupMember.settle("two share", () -> slow.owned().size() > 0 && shared(sizes(slow, quick), slow, quick), slow, quick);
            Set<String> had = slow.owned();
            int heard = slow.events.size();
            GroupMember.settle("the one that polls has all", () -> quick.owned().size() == 6, quick);
            TopicPartition tp = slow.consumer.assignment().iterator().next();
            Check.fails("commit", CommitFailedException.class, () -> slow.consumer.commitSync(Map.of(tp, new OffsetAndMetadata(1))));
            GroupMember.settle("it is back", () -> slow.events.size() > heard + 1 && slow.owned().size() > 0 && shared(sizes(slow, quick), slow, quick), slow, quick);
            Check.equal("the first thing that it heard", slow.events.get(heard), "lost" + had);
        }
    }

    private void administration() throws Exception {
        String base = name("admin");
        String topic = topic(base + ".t", 2);
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        fill(topic, 2, 5);
        try (Admin admin = admin()) {
            try (GroupMember m = member(base, "client.id", "shown").subscribe(topic)) {
                m.pollUntil(10);
                m.consumer.commitSync();
                ConsumerGroupDescription d = describe(base);
                Check.equal("state", String.valueOf(d.state()), "Stable");
                Check.equal("coordinator", d.coordinator().id(), 1);
                Check.equal("members", d.members().size(), 1);
                MemberDescription shown = d.members().iterator().next();
                Check.equal("client", shown.clientId(), "shown");
                Check.equal("host", shown.host(), "/127.0.0.1");
                Check.equal("member", shown.consumerId(), m.consumer.groupMetadata().memberId());
                Check.equal("assignment", shown.assignment().topicPartitions(), Set.of(zero, one));
                Check.fails("delete a group with a member", GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(base)).all().get());
                Check.fails("delete offsets of a topic in use", GroupSubscribedToTopicException.class, () -> admin.deleteConsumerGroupOffsets(base, Set.of(zero)).all().get());
                Check.fails("alter offsets of a group with a member", UnknownMemberIdException.class, () -> admin.alterConsumerGroupOffsets(base, Map.of(zero, new OffsetAndMetadata(1))).all().get());
            }
            Map<String, String> listed = new TreeMap<>();
            for (ConsumerGroupListing l : admin.listConsumerGroups().all().get()) {
                listed.put(l.groupId(), l.state().map(String::valueOf).orElse("none"));
            }
            Check.equal("listed", listed.get(base), "Empty");
            Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(Map.of(base, new ListConsumerGroupOffsetsSpec())).all().get().get(base);
            Check.equal("offsets", offsets.get(zero).offset() + "," + offsets.get(one).offset(), "5,5");
            admin.alterConsumerGroupOffsets(base, Map.of(zero, new OffsetAndMetadata(2))).all().get();
            admin.deleteConsumerGroupOffsets(base, Set.of(one)).all().get();
            offsets = admin.listConsumerGroupOffsets(base).partitionsToOffsetAndMetadata().get();
            Check.equal("offsets", offsets.keySet(), Set.of(zero));
            Check.equal("offset", offsets.get(zero).offset(), 2L);
            admin.deleteConsumerGroups(List.of(base)).all().get();
            Check.fails("delete again", GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(base)).all().get());
            Check.eventually(() -> Check.equal("state", stateOf(admin, base), "Dead"));
        }
    }

    /** The newer client throws where the older one tells of a dead group. */
    private static String stateOf(Admin admin, String group) throws Exception {
        try {
            return String.valueOf(admin.describeConsumerGroups(List.of(group)).all().get().get(group).state());
        } catch (ExecutionException e) {
            Check.equal("describe", e.getCause().getClass(), GroupIdNotFoundException.class);
            return "Dead";
        }
    }
}
