package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.test.TestRecord;

/** Windowed aggregations of texts; the functions are those of `tests/reference/windows.py`. */
final class Windowing {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Initializer<String> FIRST = () -> "";
    private static final Aggregator<String, String, String> ADD = (key, value, text) ->
        "x".equals(value) ? null : (text == null ? "" : text) + (value == null ? "-" : value);
    private static final Merger<String, String> MERGE = (key, left, right) -> "(" + left + "|" + right + ")";
    private static final Reducer<String> JOIN = (left, right) -> "x".equals(right) ? null : left + "+" + (right == null ? "None" : right);

    private Windowing() { }

    /** {"expected": one list of records per input, "rows": what the store shows at the end, "dropped": a count}. */
    static ObjectNode run(JsonNode request, Path states, String id) {
        JsonNode params = request.get("params");
        boolean sessions = params.get("kind").asText().equals("session");
        boolean counts = params.get("operation").asText().equals("count");
        Serde<?> values = counts ? Serdes.Long() : TEXT;
        Serde<Windowed<String>> keys = sessions ? WindowedSerdes.sessionWindowedSerdeFrom(String.class)
            : WindowedSerdes.timeWindowedSerdeFrom(String.class, params.get("size").longValue());
        StreamsBuilder builder = new StreamsBuilder();
        table(builder.stream("in", Consumed.with(TEXT, TEXT)).groupByKey(), params).toStream().to("out", Produced.with(keys, objects(values)));
        Properties settings = settings(states, id);
        ObjectNode response = JSON.createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(settings), settings)) {
            TestInputTopic<String, String> in = driver.createInputTopic("in", TEXT.serializer(), TEXT.serializer());
            TestOutputTopic<Windowed<String>, Object> out = driver.createOutputTopic("out", keys.deserializer(), objects(values).deserializer());
            ArrayNode expected = response.putArray("expected");
            for (JsonNode input : request.get("inputs")) {
                in.pipeInput(new TestRecord<>(input.get("key").textValue(), input.get("value").textValue(), Instant.ofEpochMilli(input.get("ts").longValue())));
                ArrayNode results = expected.addArray();
                out.readRecordsToList().forEach(one -> results.add(row(one.key(), one.value()).add(one.timestamp())));
            }
            ArrayNode rows = response.putArray("rows");
            if (sessions) {
                for (JsonNode key : params.get("keys")) {
                    driver.<String, Object>getSessionStore("made").fetch(key.textValue()).forEachRemaining(one -> rows.add(row(one.key, one.value)));
                }
            } else {
                driver.<String, Object>getWindowStore("made").all().forEachRemaining(one -> rows.add(row(one.key, one.value)));
            }
            response.put("dropped", driver.metrics().entrySet().stream()
                .filter(entry -> entry.getKey().name().equals("dropped-records-total"))
                .mapToLong(entry -> ((Number) entry.getValue().metricValue()).longValue()).sum());
        }
        return response;
    }

    @SuppressWarnings("unchecked")
    private static Serde<Object> objects(Serde<?> serde) {
        return (Serde<Object>) serde;
    }

    private static ArrayNode row(Windowed<String> key, Object value) {
        return JSON.createArrayNode().add(key.key()).add(key.window().start()).add(key.window().end()).addPOJO(value);
    }

    @SuppressWarnings("unchecked")
    private static KTable<Windowed<String>, Object> table(KGroupedStream<String, String> grouped, JsonNode params) {
        Duration size = Duration.ofMillis(params.get("size").longValue());
        Duration grace = Duration.ofMillis(params.get("grace").longValue());
        EmitStrategy emit = params.get("final").asBoolean() ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        String operation = params.get("operation").asText();
        KTable<?, ?> made = switch (params.get("kind").asText()) {
            case "session" -> session(grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(size, grace)).emitStrategy(emit), operation);
            case "sliding" -> window(grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(size, grace)).emitStrategy(emit), operation);
            default -> window(grouped.windowedBy(TimeWindows.ofSizeAndGrace(size, grace)
                .advanceBy(Duration.ofMillis(params.get("advance").longValue()))).emitStrategy(emit), operation);
        };
        return (KTable<Windowed<String>, Object>) made;
    }

    private static KTable<?, ?> session(SessionWindowedKStream<String, String> windowed, String operation) {
        return switch (operation) {
            case "count" -> windowed.count(Materialized.as("made"));
            case "reduce" -> windowed.reduce(JOIN, Materialized.as("made"));
            default -> windowed.aggregate(FIRST, ADD, MERGE, Materialized.<String, String, org.apache.kafka.streams.state.SessionStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("made").withValueSerde(TEXT));
        };
    }

    private static KTable<?, ?> window(TimeWindowedKStream<String, String> windowed, String operation) {
        return switch (operation) {
            case "count" -> windowed.count(Materialized.as("made"));
            case "reduce" -> windowed.reduce(JOIN, Materialized.as("made"));
            default -> windowed.aggregate(FIRST, ADD, Materialized.<String, String, org.apache.kafka.streams.state.WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("made").withValueSerde(TEXT));
        };
    }

    static Properties settings(Path states, String id) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:0");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, states.toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        settings.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, SmallRocksDb.class);
        return settings;
    }
}
