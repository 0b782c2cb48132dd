import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends each line "partition number value" of its input and prints what became of it. */
public class Load {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        p.put("acks", "all");
        p.put("enable.idempotence", "true");
        p.put("delivery.timeout.ms", Integer.toString(Integer.MAX_VALUE));
        p.put("max.block.ms", Integer.toString(Integer.MAX_VALUE));
        p.put("request.timeout.ms", "3000");
        p.put("metadata.max.age.ms", "1000");
        p.put("reconnect.backoff.max.ms", "500");
        // It asks nobody else for metadata while it waits for a connection, which nobody
        // answers where the broker is cut off: 10 s at first, then up to 30.
        p.put("socket.connection.setup.timeout.ms", "2000");
        p.put("socket.connection.setup.timeout.max.ms", "2000");
        // Nor while a connection that is there is not answered, as by a broker that stands
        // still. Between two tries it would, but its pause before the next question for
        // metadata grows to 1 s, and that before the next connection only to 0.5 s.
        p.put("retry.backoff.max.ms", "200");
        // A client of 3.9 knows the brokers of its last answer only: one that came
        // while a single broker lived, which is then killed, is the last (KIP-899).
        p.put("metadata.recovery.strategy", "rebootstrap");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p);
                BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] part = line.split(" ", 3);
                producer.send(new ProducerRecord<>(args[1], Integer.valueOf(part[0]), null, part[2]), (meta, error) -> {
                    String text = error == null
                            ? "acked " + part[0] + " " + part[1] + " " + meta.offset()
                            : "failed " + part[0] + " " + part[1] + " " + error;
                    System.out.println(text);
                });
            }
            producer.flush();
        }
    }
}
