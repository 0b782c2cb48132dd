import java.io.*;
import java.nio.file.*;
import java.util.*;
import kafka.cluster.EndPoint;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.jdk.javaapi.CollectionConverters;

/** Asks Kafka's own classes for what the package's tests expect: see ../README.md. */
public class Record {
  static final String[] CANDIDATES = {
    "", "abc", "true", "FALSE", "-3", "-2", "-1", "0", "1", "2", "3", "4", "5", "9", "10", "11", "12", "13", "14", "17", "18",
    "22", "23", "99", "100", "101", "1000", "1001", "1023", "1024", "10001", "29999", "30000", "60001", "3600001", "32767",
    "32768", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "-131072", "-131073", "0.5", "0.51",
    "1.1", "1e3", " 7 ", "a,b", "delete", "compact,delete", "gzip", "GZIP", "producer", "CreateTime", "3.9", "3.9.2",
    "3.9-IV0", "4.0-IV1", "4.0", "0.10.2.1", "2.0-IV7", "required", "PLAINTEXT", "plaintext", "classic", "share", "DISABLED",
    "broker", "1:2", "*"};

  public static void main(String[] args) throws Exception {
    Path dir = Paths.get(args[0]);
    values(dir.resolve("values.txt"));
    doubles(dir.resolve("doubles.txt"));
    properties(dir.resolve("tricky.properties"), dir.resolve("tricky.txt"));
    statics(dir.resolve("static.txt"));
  }

  static String quote(String s) {
    return "\"" + s.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + "\"";
  }

  /** For each key, which candidates are accepted: + or -. Java classes depend on the class path and are left out. */
  static void values(Path path) throws IOException {
    List<String> out = new ArrayList<>();
    StringBuilder head = new StringBuilder("candidates");
    for (String c : CANDIDATES) head.append(' ').append(quote(c).replace(" ", "\\s"));
    out.add(head.toString());
    values("broker", AbstractKafkaConfig.CONFIG_DEF, out);
    values("topic", LogConfig.configDefCopy(), out);
    Files.write(path, out);
  }

  static void values(String kind, ConfigDef def, List<String> out) {
    for (String name : new TreeSet<>(def.names())) {
      ConfigDef.ConfigKey key = def.configKeys().get(name);
      if (key.type == ConfigDef.Type.CLASS) continue;
      ConfigDef one = new ConfigDef();
      one.define(key);
      StringBuilder verdicts = new StringBuilder();
      for (String c : CANDIDATES) {
        try {
          one.parse(Collections.singletonMap(name, c));
          verdicts.append('+');
        } catch (Exception e) {
          verdicts.append('-');
        }
      }
      out.add(kind + " " + name + " " + verdicts);
    }
  }

  /** Answers each quoted number that is in the file already. */
  static void doubles(Path path) throws IOException {
    List<String> out = new ArrayList<>();
    for (String line : Files.readAllLines(path)) {
      String quoted = line.substring(0, line.lastIndexOf(' '));
      String answer;
      try {
        answer = ConfigDef.parseType("k", quoted.substring(1, quoted.length() - 1), ConfigDef.Type.DOUBLE).toString();
      } catch (Exception e) {
        answer = "error";
      }
      out.add(quoted + " " + answer);
    }
    Files.write(path, out);
  }

  static void properties(Path in, Path path) throws IOException {
    Properties p = new Properties();
    try (InputStream s = Files.newInputStream(in)) {
      p.load(s);
    }
    List<String> out = new ArrayList<>();
    for (String name : new TreeSet<>(p.stringPropertyNames())) out.add(quote(name) + " = " + quote(p.getProperty(name)));
    Files.write(path, out);
  }

  /** Answers each block of properties that is in the file already. */
  static void statics(Path path) throws IOException {
    List<String> out = new ArrayList<>();
    StringBuilder block = new StringBuilder();
    for (String line : Files.readAllLines(path)) {
      if (line.startsWith("=>")) continue;
      out.add(line);
      if (!line.equals("----")) {
        block.append(line).append('\n');
        continue;
      }
      Properties p = new Properties();
      p.load(new StringReader(block.toString()));
      p.putIfAbsent("zookeeper.connect", "z");
      block.setLength(0);
      String answer;
      try {
        answer = "ok " + summary(KafkaConfig.fromProps(p, false));
      } catch (Throwable e) {
        answer = "error";
      }
      out.add("=> " + answer);
    }
    Files.write(path, out);
  }

  static String summary(KafkaConfig c) {
    Map<String, Object> log = new TreeMap<>(c.extractLogConfigMap());
    LogConfig.validateBrokerLogConfigValues(log, false);
    new LogConfig(log);
    return "id=" + c.brokerId()
        + " listeners=" + endpoints(c.listeners())
        + " advertised=" + endpoints(c.effectiveAdvertisedBrokerListeners())
        + " inter=" + c.interBrokerListenerName().value()
        + " control=" + (c.controlPlaneListenerName().isDefined() ? c.controlPlaneListenerName().get().value() : "")
        + " dirs=" + CollectionConverters.asJava(c.logDirs())
        + " segment.ms=" + log.get("segment.ms")
        + " segment.jitter.ms=" + log.get("segment.jitter.ms")
        + " retention.ms=" + log.get("retention.ms")
        + " flush.ms=" + log.get("flush.ms")
        + " before=" + log.get("message.timestamp.before.max.ms")
        + " after=" + log.get("message.timestamp.after.max.ms")
        + " policy=" + log.get("cleanup.policy")
        + " zkConnectionMs=" + c.zkConnectionTimeoutMs()
        + " perIp=" + new TreeMap<>(CollectionConverters.asJava(c.maxConnectionsPerIpOverrides()));
  }

  static String endpoints(scala.collection.Seq<EndPoint> endpoints) {
    List<String> out = new ArrayList<>();
    for (EndPoint e : CollectionConverters.asJava(endpoints)) {
      out.add(e.listenerName().value() + "(" + e.securityProtocol() + ")://" + (e.host() == null ? "" : e.host()) + ":" + e.port());
    }
    return "[" + String.join(",", out) + "]";
  }
}
