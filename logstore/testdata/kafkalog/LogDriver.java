import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;

import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;

/**
 * Runs the operations of a script on one log of Apache Kafka itself and prints
 * a line for each, so that the files it leaves can be compared.
 * Arguments: the partition's directory, then topic configs as key=value.
 */
public class LogDriver {
    /** Runs what is due now at once, and never what is due later. */
    static class Now implements Scheduler {
        public void startup() { }
        public void shutdown() { }
        public void resizeThreadPool(int n) { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs <= 0 && periodMs < 0)
                task.run();
            return new NoFuture();
        }
    }

    /** Stands still, so that nothing depends on when the test runs. */
    static class Still implements Time {
        public long milliseconds() { return 1_700_000_000_000L; }
        public long nanoseconds() { return 0; }
        public void sleep(long ms) { }
        public void waitObject(Object o, java.util.function.Supplier<Boolean> c, long d) { }
    }

    static class NoFuture implements ScheduledFuture<Object> {
        public long getDelay(java.util.concurrent.TimeUnit u) { return 0; }
        public int compareTo(java.util.concurrent.Delayed o) { return 0; }
        public boolean cancel(boolean b) { return true; }
        public boolean isCancelled() { return false; }
        public boolean isDone() { return true; }
        public Object get() { return null; }
        public Object get(long t, java.util.concurrent.TimeUnit u) { return null; }
    }

    final File dir;
    final Properties props = new Properties();
    UnifiedLog log;
    long recoveryPoint = 0, logStart = 0;

    LogDriver(String[] args) {
        dir = new File(args[0]);
        for (int i = 1; i < args.length; i++) {
            String[] kv = args[i].split("=", 2);
            props.put(kv[0], kv[1]);
        }
    }

    void open(boolean clean) {
        log = UnifiedLog.apply(dir, new LogConfig(props), logStart, recoveryPoint, new Now(), new BrokerTopicStats(false), new Still(),
            15 * 60 * 1000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000, new LogDirFailureChannel(1), clean,
            Option.empty(), true, new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
    }

    String info(LogAppendInfo i) { return i.firstOffset() + " " + i.lastOffset(); }

    String step(String line) throws Exception {
        String[] f = line.split(" ");
        switch (f[0]) {
            case "leader":
                return info(log.appendAsLeader(records(f[3]), Integer.parseInt(f[1]), AppendOrigin.valueOf(f[2]), MetadataVersion.latestProduction(),
                    RequestLocal.NoCaching(), VerificationGuard.SENTINEL));
            case "follower":
                return info(log.appendAsFollower(records(f[2]), Integer.parseInt(f[1])));
            case "epoch":
                log.maybeAssignEpochStartOffset(Integer.parseInt(f[1]), log.logEndOffset());
                return "ok";
            case "ends":
                Option<OffsetAndEpoch> end = log.endOffsetForEpoch(Integer.parseInt(f[1]));
                return end.isEmpty() ? "-1 -1" : end.get().leaderEpoch() + " " + end.get().offset();
            case "hw":
                log.updateHighWatermark(Long.parseLong(f[1]));
                return "lso " + log.lastStableOffset();
            case "start":
                log.maybeIncrementLogStartOffset(Long.parseLong(f[1]), LogStartOffsetIncrementReason.ClientRecordDeletion);
                return "ok";
            case "truncate":
                log.truncateTo(Long.parseLong(f[1]));
                log.flush(false); // kbroker makes a truncation durable
                return "leo " + log.logEndOffset();
            case "empty":
                log.truncateFullyAndStartAt(Long.parseLong(f[1]), Option.empty());
                return "leo " + log.logEndOffset();
            case "delete":
                return "deleted " + log.deleteOldSegments();
            case "time":
                Option<FileRecords.TimestampAndOffset> r = log.fetchOffsetByTimestamp(Long.parseLong(f[1]), Option.empty());
                return r.isEmpty() ? "none" : r.get().timestamp + " " + r.get().offset + " " + r.get().leaderEpoch.orElse(-1);
            case "reopen":
                log.flush(true);
                logStart = log.logStartOffset();
                log.close();
                recoveryPoint = log.recoveryPoint();
                open(true);
                return "leo " + log.logEndOffset();
            case "crash":
                logStart = log.logStartOffset();
                recoveryPoint = log.recoveryPoint();
                log.closeHandlers();
                open(false);
                return "leo " + log.logEndOffset() + " from " + recoveryPoint;
        }
        throw new IllegalArgumentException(line);
    }

    public static void main(String[] args) throws Exception {
        LogDriver d = new LogDriver(args);
        d.open(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String out;
            try {
                out = d.step(line);
            } catch (Exception e) {
                out = "error " + e.getClass().getSimpleName();
            }
            System.out.println(out);
        }
        d.log.flush(true);
        d.log.close();
    }
}
