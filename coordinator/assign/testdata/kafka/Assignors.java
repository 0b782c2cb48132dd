import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

/**
 * Prints what Apache Kafka's own assignors make of seeded random groups:
 * java -cp 'kafka-group-coordinator-4.1.0 and what it needs' Assignors.java > ../kafka.txt
 */
public class Assignors {
    static Uuid id(int topic) { return new Uuid(0, topic + 1); }

    static String text(Map<Uuid, ? extends Set<Integer>> partitions) {
        return new TreeMap<>(partitions).entrySet().stream()
            .filter(e -> !e.getValue().isEmpty())
            .map(e -> (e.getKey().getLeastSignificantBits() - 1) + ":" + e.getValue().stream().sorted().map(String::valueOf).collect(Collectors.joining(",")))
            .collect(Collectors.joining(";"));
    }

    public static void main(String[] args) {
        Random random = new Random(848);
        for (int n = 0; n < 240; n++) {
            ConsumerGroupPartitionAssignor assignor = n % 2 == 0 ? new RangeAssignor() : new UniformAssignor();
            boolean same = n % 4 < 2;
            int topics = n % 8 == 1 ? 1 : 1 + random.nextInt(6);
            int[] partitions = random.ints(topics, 1, 13).toArray();
            SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) { return partitions[(int) topic.getLeastSignificantBits() - 1]; }
                public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
            };
            System.out.printf("case %s %s%n", assignor.name(), same ? "same" : "mixed");
            System.out.printf("topics %s%n", Arrays.stream(partitions).mapToObj(String::valueOf).collect(Collectors.joining(" ")));
            int count = 1 + random.nextInt(8);
            Map<String, Assignment> current = new TreeMap<>();
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
            // Two rounds: from nothing, and again after some have left and joined.
            for (int round = 0; round < 2; round++) {
                Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
                if (round == 1) members.keySet().removeIf(member -> random.nextInt(3) == 0);
                int before = members.size();
                for (int m = before; m < Math.max(1, before + (round == 0 ? count : random.nextInt(4))); m++) {
                    Set<Uuid> mine = new TreeSet<>();
                    for (int t = 0; t < topics; t++) if (same || random.nextInt(3) > 0) mine.add(id(t));
                    String name = "m" + random.nextInt(1000) + "-" + round + m;
                    members.put(name, new MemberSubscriptionAndAssignmentImpl(Optional.empty(),
                        random.nextInt(3) == 0 ? Optional.of("i" + random.nextInt(1000)) : Optional.empty(), mine, Assignment.EMPTY));
                }
                members.replaceAll((name, member) -> new MemberSubscriptionAndAssignmentImpl(member.rackId(), member.instanceId(),
                    member.subscribedTopicIds(), current.getOrDefault(name, Assignment.EMPTY)));
                members.forEach((name, member) -> member.partitions().forEach((topic, list) -> list.forEach(p ->
                    inverted.computeIfAbsent(topic, __ -> new HashMap<>()).put(p, name))));
                GroupAssignment target = assignor.assign(
                    new GroupSpecImpl(members, same ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, inverted), describer);
                System.out.printf("round %d%n", round);
                current.clear();
                members.forEach((name, member) -> {
                    MemberAssignment given = target.members().get(name);
                    Map<Uuid, Set<Integer>> got = given == null ? Map.of() : given.partitions();
                    System.out.printf("%s %s [%s] [%s] [%s]%n", name, member.instanceId().orElse("-"),
                        member.subscribedTopicIds().stream().map(u -> String.valueOf(u.getLeastSignificantBits() - 1)).collect(Collectors.joining(",")),
                        text(member.partitions()), text(got));
                    current.put(name, new Assignment(got));
                });
            }
        }
    }
}
