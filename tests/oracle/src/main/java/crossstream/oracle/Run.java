package crossstream.oracle;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import crossstream.oracle.Case.Input;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.test.TestRecord;

/** Feeds one case through a fresh driver and collects what comes out after every input. */
final class Run {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Run() { }

    /** {"expected": one list of records per input, "table": the final rows if the result is stored, "dropped": a count}. */
    static ObjectNode run(Case request, Path states, String id) {
        Properties settings = settings(request, states, id);
        Joins joins = new Joins(request);
        List<OldValues.Seen> changes = new ArrayList<>();
        Topology topology = joins.build(settings, changes);
        ObjectNode response = JSON.createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, settings)) {
            response.set("expected", feed(request, driver, joins, changes));
            if (joins.stored()) {
                response.set("table", table(driver));
            }
            response.put("dropped", dropped(driver));
        }
        return response;
    }

    /**
     * No caches, no throttles. Stream-stream joins keep Kafka's default store type, because the in-memory one counts
     * records older than its retention as dropped and the default does not; nothing else depends on the type.
     */
    private static Properties settings(Case request, Path states, String id) {
        boolean windows = request.joins().stream().anyMatch(join -> join.by("stream-stream"));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:0");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, states.toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, windows
            ? BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class : BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        settings.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, SmallRocksDb.class);
        if (request.flag("self_join", false)) {
            settings.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.SINGLE_STORE_SELF_JOIN);
        }
        return settings;
    }

    private static ArrayNode feed(Case request, TopologyTestDriver driver, Joins joins, List<OldValues.Seen> changes) {
        boolean oldValues = request.flag("send_old_values", false);
        boolean headers = request.withHeaders();
        Map<String, TestInputTopic<Object, Object>> topics = new HashMap<>();
        for (String side : joins.sides()) {
            topics.put(side, driver.createInputTopic(side, joins.key(side).serializer(), joins.value(side).serializer()));
        }
        TestOutputTopic<Object, Object> output = oldValues ? null
            : driver.createOutputTopic(Joins.OUTPUT, joins.outputKey().deserializer(), joins.outputValue().deserializer());
        ArrayNode expected = JSON.createArrayNode();
        for (Input input : request.inputs()) {
            TestInputTopic<Object, Object> topic = topics.get(input.side());
            if (topic == null) {
                throw new IllegalArgumentException("no join reads side " + input.side());
            }
            topic.pipeInput(new TestRecord<>(input.key(), input.value(), input.headers(), input.timestamp()));
            ArrayNode results = expected.addArray();
            if (oldValues) {
                changes.forEach(change -> results.add(row(change.key(), change.value(), change.timestamp()).set("old", JSON.valueToTree(change.old()))));
                changes.clear();
            } else {
                output.readRecordsToList().forEach(record -> results.add(row(record, headers)));
            }
        }
        return expected;
    }

    private static ObjectNode row(TestRecord<Object, Object> record, boolean headers) {
        ObjectNode row = row(record.key(), record.value(), record.timestamp());
        if (headers) {
            ObjectNode named = row.putObject("headers");
            record.headers().forEach(header -> named.put(header.key(), HexFormat.of().formatHex(header.value())));
        }
        return row;
    }

    private static ObjectNode row(Object key, Object value, long timestamp) {
        return JSON.createObjectNode().putPOJO("key", key).putPOJO("value", value).put("ts", timestamp);
    }

    private static ArrayNode table(TopologyTestDriver driver) {
        ArrayNode rows = JSON.createArrayNode();
        try (KeyValueIterator<Object, ValueAndTimestamp<Object>> all = driver.<Object, Object>getTimestampedKeyValueStore(Joins.RESULT).all()) {
            all.forEachRemaining(entry -> rows.add(row(entry.key, entry.value.value(), entry.value.timestamp())));
        }
        return rows;
    }

    private static long dropped(TopologyTestDriver driver) {
        return driver.metrics().entrySet().stream()
            .filter(entry -> entry.getKey().name().equals("dropped-records-total"))
            .mapToLong(entry -> ((Number) entry.getValue().metricValue()).longValue()).sum();
    }
}
