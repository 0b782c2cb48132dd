import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Prints records of consumer groups as Apache Kafka writes them:
 * java -cp 'kafka-group-coordinator-4.4.0 and what it needs' ConsumerRecords.java > ../consumer_records.txt
 */
public class ConsumerRecords {
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    static void print(String name, CoordinatorRecord record) {
        byte[] value = SERDE.serializeValue(record);
        System.out.println(name + " " + HexFormat.of().formatHex(SERDE.serializeKey(record)) + " " + (value == null ? "-" : HexFormat.of().formatHex(value)));
    }

    static ApiMessageAndVersion v0(org.apache.kafka.common.protocol.ApiMessage value) { return new ApiMessageAndVersion(value, (short) 0); }

    public static void main(String[] args) {
        Uuid one = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L), two = new Uuid(0x1112131415161718L, 0x191a1b1c1d1e1f20L);
        var group = new ConsumerGroupMetadataKey().setGroupId("grüppe");
        print("epoch", CoordinatorRecord.record(group, v0(new ConsumerGroupMetadataValue().setEpoch(7))));
        print("epoch+hash", CoordinatorRecord.record(group, v0(new ConsumerGroupMetadataValue().setEpoch(8).setMetadataHash(0x123456789abcdef0L))));
        print("epoch+none", CoordinatorRecord.tombstone(group));

        var partitions = new ConsumerGroupPartitionMetadataKey().setGroupId("g");
        print("partitions", CoordinatorRecord.record(partitions, v0(new ConsumerGroupPartitionMetadataValue().setTopics(List.of(
            new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(one).setTopicName("a").setNumPartitions(3).setPartitionMetadata(List.of(
                new ConsumerGroupPartitionMetadataValue.PartitionMetadata().setPartition(0).setRacks(List.of("r1", "r2")))))))));
        print("partitions+none", CoordinatorRecord.tombstone(partitions));

        var member = new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m-1");
        print("member+least", CoordinatorRecord.record(member, v0(new ConsumerGroupMemberMetadataValue().setClientId("c").setClientHost("/127.0.0.1")
            .setSubscribedTopicNames(List.of()).setInstanceId(null).setRackId(null).setSubscribedTopicRegex("").setRebalanceTimeoutMs(-1).setServerAssignor(null).setClassicMemberMetadata(null))));
        print("member+most", CoordinatorRecord.record(member, v0(new ConsumerGroupMemberMetadataValue().setClientId("").setClientHost("/127.0.0.1")
            .setSubscribedTopicNames(List.of("a", "b")).setInstanceId("i").setRackId("r").setSubscribedTopicRegex("x.*").setRebalanceTimeoutMs(300000).setServerAssignor("range")
            .setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45000).setSupportedProtocols(List.of(
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("sticky").setMetadata(new byte[]{1, 2, 3}),
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[0])))))));
        print("member+none", CoordinatorRecord.tombstone(member));

        var target = new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g");
        print("targetepoch", CoordinatorRecord.record(target, v0(new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9))));
        print("targetepoch+at", CoordinatorRecord.record(target, v0(new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9).setAssignmentTimestamp(1700000000000L))));
        print("targetepoch+none", CoordinatorRecord.tombstone(target));

        var mine = new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m-1");
        print("target", CoordinatorRecord.record(mine, v0(new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(one).setPartitions(List.of(0, 2, 300)),
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(two).setPartitions(List.of(1)))))));
        print("target+empty", CoordinatorRecord.record(mine, v0(new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of()))));
        print("target+none", CoordinatorRecord.tombstone(mine));

        var current = new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m-1");
        print("current", CoordinatorRecord.record(current, v0(new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(10).setPreviousMemberEpoch(9).setState((byte) 1)
            .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(one).setPartitions(List.of(0, 1))))
            .setPartitionsPendingRevocation(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(two).setPartitions(List.of(5)))))));
        print("current+left", CoordinatorRecord.record(current, v0(new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(-2).setPreviousMemberEpoch(10).setState((byte) 0)
            .setAssignedPartitions(List.of()).setPartitionsPendingRevocation(List.of()))));
        print("current+none", CoordinatorRecord.tombstone(current));

        var regex = new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("a.*|b");
        print("regex", CoordinatorRecord.record(regex, v0(new ConsumerGroupRegularExpressionValue().setTopics(List.of("abc", "b")).setVersion(12).setTimestamp(1700000000000L))));
        print("regex+none", CoordinatorRecord.tombstone(regex));
    }
}
