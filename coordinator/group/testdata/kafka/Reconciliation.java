import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData.TopicPartitions;
import org.apache.kafka.coordinator.group.modern.*;
import org.apache.kafka.coordinator.group.modern.consumer.*;

/**
 * Prints what Apache Kafka makes of members on their way to their targets:
 * java -cp 'kafka-group-coordinator-4.1.0 and what it needs' Reconciliation.java > ../reconciliation.txt
 */
public class Reconciliation {
    static final Random RANDOM = new Random(848);

    static Uuid id(int topic) { return new Uuid(0, topic + 1); }

    /** A set of some of the partitions that accept says yes to, by topic. */
    static Map<Uuid, Set<Integer>> some(int of, java.util.function.BiPredicate<Uuid, Integer> accept) {
        Map<Uuid, Set<Integer>> out = new TreeMap<>();
        for (int t = 0; t < 2; t++) {
            for (int p = 0; p < 4; p++) {
                if (RANDOM.nextInt(of) == 0 && accept.test(id(t), p)) out.computeIfAbsent(id(t), __ -> new TreeSet<>()).add(p);
            }
        }
        return out;
    }

    static boolean has(Map<Uuid, Set<Integer>> set, Uuid topic, int p) { return set.getOrDefault(topic, Set.of()).contains(p); }

    static String text(Map<Uuid, Set<Integer>> set) {
        return "[" + new TreeMap<>(set).entrySet().stream().filter(e -> !e.getValue().isEmpty())
            .map(e -> (e.getKey().getLeastSignificantBits() - 1) + ":" + e.getValue().stream().sorted().map(String::valueOf).collect(Collectors.joining(",")))
            .collect(Collectors.joining(";")) + "]";
    }

    static String text(ConsumerGroupMember m) {
        return m.state().value() + " " + m.memberEpoch() + " " + m.previousMemberEpoch() + " " + text(m.assignedPartitions()) + " " + text(m.partitionsPendingRevocation());
    }

    public static void main(String[] args) {
        MemberState[] states = {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS, MemberState.UNKNOWN};
        for (int n = 0; n < 2000; n++) {
            MemberState state = states[RANDOM.nextInt(20) == 0 ? 3 : RANDOM.nextInt(3)];
            Map<Uuid, Set<Integer>> assigned = some(2, (t, p) -> true);
            Map<Uuid, Set<Integer>> revoking = state == MemberState.UNREVOKED_PARTITIONS ? some(2, (t, p) -> !has(assigned, t, p)) : Map.of();
            Map<Uuid, Set<Integer>> target = some(2, (t, p) -> true);
            Map<Uuid, Set<Integer>> others = some(3, (t, p) -> !has(assigned, t, p) && !has(revoking, t, p));
            Map<Uuid, Set<Integer>> owned = RANDOM.nextInt(4) == 0 ? null : some(2, (t, p) -> RANDOM.nextInt(3) == 0 || has(assigned, t, p));
            int epoch = 3 + RANDOM.nextInt(3);
            int targetEpoch = epoch + RANDOM.nextInt(3);
            ConsumerGroupMember member = new ConsumerGroupMember.Builder("m").setState(state).setMemberEpoch(epoch).setPreviousMemberEpoch(epoch - RANDOM.nextInt(2))
                .setAssignedPartitions(assigned).setPartitionsPendingRevocation(revoking).build();
            String result;
            try {
                result = text(new CurrentAssignmentBuilder(member)
                    .withTargetAssignment(targetEpoch, new Assignment(target))
                    .withCurrentPartitionEpoch((t, p) -> has(others, t, p) || has(assigned, t, p) || has(revoking, t, p) ? 1 : -1)
                    .withOwnedTopicPartitions(owned == null ? null : owned.entrySet().stream()
                        .map(e -> new TopicPartitions().setTopicId(e.getKey()).setPartitions(List.copyOf(e.getValue()))).toList())
                    .build());
            } catch (ApiException e) {
                result = "fenced";
            }
            System.out.println(text(member) + " | " + targetEpoch + " " + text(target) + " | " + text(others) + " | " + (owned == null ? "-" : text(owned)) + " | " + result);
        }
    }
}
