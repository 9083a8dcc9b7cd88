package crossstream.peer;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;

/**
 * A join in Kafka's own test driver, for benchmarks. Standard input: a record in each line, topic, timestamp, key and
 * value (none: a tombstone) between tabs; an empty line ends a round. Standard output: {"seconds": [of each round],
 * "results": all of them}.
 */
public final class Driver {
    private record Line(String topic, long timestamp, String key, byte[] value) { }

    private Driver() { }

    public static void main(String[] words) throws IOException {
        Arguments arguments = Arguments.of(words);
        Properties settings = arguments.settings();
        List<List<Line>> rounds = read();
        ObjectNode told = new ObjectMapper().createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(Joins.of(arguments).build(settings), settings)) {
            StringSerializer keys = new StringSerializer();
            ByteArraySerializer values = new ByteArraySerializer();
            TestInputTopic<String, byte[]> left = driver.createInputTopic(arguments.text("left"), keys, values);
            TestInputTopic<String, byte[]> right = driver.createInputTopic(arguments.text("right"), keys, values);
            TestOutputTopic<String, byte[]> results = driver.createOutputTopic(
                arguments.text("output"), new StringDeserializer(), new ByteArrayDeserializer());
            long count = 0;
            for (List<Line> round : rounds) {
                long began = System.nanoTime();
                for (Line line : round) {
                    (line.topic().equals(arguments.text("left")) ? left : right)
                        .pipeInput(line.key(), line.value(), line.timestamp());
                }
                told.withArray("seconds").add((System.nanoTime() - began) / 1e9);
                count += results.readKeyValuesToList().size();
            }
            told.put("results", count);
        }
        System.out.println(told);
    }

    private static List<List<Line>> read() throws IOException {
        List<List<Line>> rounds = new ArrayList<>(List.of(new ArrayList<>()));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            if (text.isEmpty()) {
                rounds.add(new ArrayList<>());
                continue;
            }
            String[] parts = text.split("\t", 4);
            byte[] value = parts.length < 4 ? null : parts[3].getBytes(StandardCharsets.UTF_8);
            rounds.get(rounds.size() - 1).add(new Line(parts[0], Long.parseLong(parts[1]), parts[2], value));
        }
        return rounds;
    }
}
