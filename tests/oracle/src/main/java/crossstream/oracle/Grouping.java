package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/** Groups of streams and tables of texts; the functions and shapes are those of `tests/operators/aggregate/groups.py`. */
final class Grouping {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Grouped<String, String> GROUPED = Grouped.with(TEXT, TEXT);
    private static final Aggregator<String, String, String> ADD = (key, value, made) -> value != null && value.contains("x") ? null : made + key + value;
    private static final Aggregator<String, String, String> ADD_OTHER = (key, value, made) -> value != null && value.contains("x") ? null : made + "/" + value;
    private static final Aggregator<String, String, String> SUBTRACT = (key, value, made) -> value.contains("y") ? null : made + "~" + value;
    private static final Reducer<String> PLUS = (made, value) -> value.contains("x") ? null : made + "+" + value;
    private static final Reducer<String> MINUS = (made, value) -> value.contains("y") ? null : made + "-" + value;
    private static final Merger<String, String> MERGE = (key, left, right) -> "(" + left + "|" + right + ")";
    private static final ValueJoiner<String, String, String> BOTH = (left, right) -> (left == null ? "" : left) + (right == null ? "" : right);

    private final JsonNode params;
    private final StreamsBuilder builder = new StreamsBuilder();

    private Grouping(JsonNode params) {
        this.params = params;
    }

    /** {"expected": the records of each input with the number of the input in their headers, "rows": the store, "dropped": a count}. */
    static ObjectNode run(JsonNode request, Path states, String id) {
        Grouping grouping = new Grouping(request.get("params"));
        boolean windowed = grouping.is("shape", "windowed cogroup") || grouping.is("shape", "closed");
        Properties settings = Windowing.settings(states, id);
        if (!windowed && !grouping.is("shape", "windows")) {
            settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        grouping.table().toStream((key, value) -> text(key)).mapValues(value -> value == null ? null : value.toString())
            .to("out", Produced.with(TEXT, TEXT));
        ObjectNode response = JSON.createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(grouping.builder.build(settings), settings)) {
            TestOutputTopic<String, String> out = driver.createOutputTopic("out", TEXT.deserializer(), TEXT.deserializer());
            ArrayNode expected = response.putArray("expected");
            for (JsonNode input : request.get("inputs")) {
                TestInputTopic<String, String> in = driver.createInputTopic(input.get("topic").textValue(), TEXT.serializer(), TEXT.serializer());
                RecordHeaders headers = new RecordHeaders();
                headers.add("n", Integer.toString(expected.size()).getBytes(StandardCharsets.UTF_8));
                in.pipeInput(new TestRecord<>(input.get("key").textValue(), input.get("value").textValue(), headers, input.get("ts").longValue()));
                ArrayNode results = expected.addArray();
                out.readRecordsToList().forEach(one -> {
                    ArrayNode row = results.addArray().add(one.key()).add(one.value()).add(one.timestamp());
                    one.headers().forEach(header -> row.add(new String(header.value(), StandardCharsets.UTF_8)));
                });
            }
            ArrayNode rows = response.putArray("rows");
            if (!windowed) {
                driver.<Object, Object>getTimestampedKeyValueStore("made").all()
                    .forEachRemaining(one -> rows.addArray().add(text(one.key)).add(one.value.value().toString()).add(one.value.timestamp()));
            } else if (grouping.is("kind", "session")) {
                for (String key : List.of("a", "b", "c")) {
                    driver.<String, Object>getSessionStore("made").fetch(key)
                        .forEachRemaining(one -> rows.addArray().add(text(one.key)).add(one.value.toString()));
                }
            } else {
                driver.<String, Object>getWindowStore("made").all().forEachRemaining(one -> rows.addArray().add(text(one.key)).add(one.value.toString()));
            }
            response.put("dropped", driver.metrics().entrySet().stream()
                .filter(entry -> entry.getKey().name().equals("dropped-records-total"))
                .mapToLong(entry -> ((Number) entry.getValue().metricValue()).longValue()).sum());
        }
        return response;
    }

    private static String text(Object key) {
        return key instanceof Windowed<?> windowed
            ? windowed.key() + "@" + windowed.window().start() + "-" + windowed.window().end() : (String) key;
    }

    private boolean is(String name, String value) {
        return params.get(name).textValue().equals(value);
    }

    private KTable<?, ?> table() {
        String source = params.get("source").textValue();
        return switch (params.get("shape").textValue()) {
            case "stream" -> made(grouped(source, stream("in")));
            case "cogroup" -> cogrouped(source).aggregate(first(), kept());
            case "windowed cogroup" -> windowed(cogrouped(source));
            case "table" -> made(source(source).groupBy(Grouping::grouped, GROUPED));
            case "counts" -> made(grouped(source, stream("in")).count()
                .groupBy((key, count) -> KeyValue.pair(parity(count), key + count), GROUPED));
            case "restream" -> made(renamed(grouped(source, stream("in")).aggregate(first(), ADD, Materialized.with(TEXT, TEXT))));
            case "table restream" -> made(renamed(source(source).groupBy(Grouping::grouped, GROUPED)
                .aggregate(first(), ADD, SUBTRACT, Materialized.with(TEXT, TEXT))));
            case "closed" -> closed(stream("in").groupByKey(GROUPED));
            case "windows" -> made(counted(stream("in").groupByKey(GROUPED))
                .groupBy((key, count) -> KeyValue.pair(count == 0 ? null : key.key(), key.window().start() + ":" + count), GROUPED));
            default -> throw new IllegalArgumentException("no shape " + params.get("shape"));
        };
    }

    /** Of a group's first count, Kafka passes 0 on as the old one, which was never there. */
    private String parity(long count) {
        return count == 0 && !params.get("zero").booleanValue() ? null : count % 2 == 0 ? "even" : "odd";
    }

    private KStream<String, String> stream(String topic) {
        return builder.stream(topic, Consumed.with(TEXT, TEXT));
    }

    private static String named(Object key, String value) {
        return value == null || value.startsWith("-") ? null : value.substring(0, 1);
    }

    private static KGroupedStream<String, String> grouped(String source, KStream<String, String> stream) {
        return switch (source) {
            case "key" -> stream.groupByKey(GROUPED);
            case "value" -> stream.groupBy(Grouping::named, GROUPED);
            case "re-keyed" -> stream.selectKey(Grouping::named).groupByKey(GROUPED);
            default -> throw new IllegalArgumentException("no grouping " + source);
        };
    }

    private static KeyValue<String, String> grouped(String key, String value) {
        String item = value.substring(1);
        return KeyValue.pair(value.startsWith("-") ? null : value.substring(0, 1), item.startsWith("-") ? null : item);
    }

    private static KGroupedStream<String, String> renamed(KTable<String, String> table) {
        return table.toStream().selectKey((key, value) -> value == null ? "z" : value.length() % 4 == 0 ? null : value.substring(value.length() - 1))
            .groupByKey(GROUPED);
    }

    private KTable<String, String> source(String source) {
        return switch (source) {
            case "table" -> topic("in");
            case "to_table" -> stream("in").toTable(Materialized.with(TEXT, TEXT));
            case "re-keyed to_table" -> stream("in").selectKey((key, value) -> value == null ? key : value.substring(value.length() - 1))
                .toTable(Materialized.with(TEXT, TEXT));
            case "filter" -> some(topic("in"));
            case "map" -> marked(topic("in"));
            case "versions" -> versions();
            case "filter of versions" -> some(versions());
            case "map of versions" -> marked(versions());
            case "inner" -> topic("in").join(topic("other"), BOTH);
            case "left" -> topic("in").leftJoin(topic("other"), BOTH);
            case "outer" -> topic("in").outerJoin(topic("other"), BOTH);
            default -> throw new IllegalArgumentException("no table " + source);
        };
    }

    private KTable<String, String> some(KTable<String, String> table) {
        return table.filter((key, value) -> !value.contains("3"));
    }

    private KTable<String, String> marked(KTable<String, String> table) {
        return table.mapValues(value -> value.contains("2") ? null : value + "'");
    }

    private KTable<String, String> versions() {
        return builder.table("in", Consumed.with(TEXT, TEXT), Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore("versions", Duration.ofMillis(10))).withKeySerde(TEXT).withValueSerde(TEXT));
    }

    private KTable<String, String> topic(String name) {
        return builder.table(name, Consumed.with(TEXT, TEXT));
    }

    private Initializer<String> first() {
        boolean none = params.get("none").booleanValue();
        return () -> none ? null : "";
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept() {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("made").withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private static <S extends StateStore> Materialized<String, String, S> keptWindows() {
        return Materialized.<String, String, S>as("made").withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private KTable<?, ?> made(KGroupedStream<String, String> grouped) {
        return switch (params.get("operator").textValue()) {
            case "count" -> grouped.count(Materialized.as("made"));
            case "reduce" -> grouped.reduce(PLUS, kept());
            default -> grouped.aggregate(first(), ADD, kept());
        };
    }

    private KTable<?, ?> made(KGroupedTable<String, String> grouped) {
        return switch (params.get("operator").textValue()) {
            case "count" -> grouped.count(Materialized.as("made"));
            case "reduce" -> grouped.reduce(PLUS, MINUS, kept());
            default -> grouped.aggregate(first(), ADD, SUBTRACT, kept());
        };
    }

    private CogroupedKStream<String, String> cogrouped(String source) {
        return grouped(source, stream("in")).cogroup(ADD).cogroup(grouped("key", stream("other")), ADD_OTHER);
    }

    private Duration duration(String name) {
        return Duration.ofMillis(params.get(name).longValue());
    }

    private TimeWindows time() {
        return TimeWindows.ofSizeAndGrace(duration("size"), duration("grace")).advanceBy(duration("advance"));
    }

    private SessionWindows sessions() {
        return SessionWindows.ofInactivityGapAndGrace(duration("size"), duration("grace"));
    }

    private SlidingWindows sliding() {
        return SlidingWindows.ofTimeDifferenceAndGrace(duration("size"), duration("grace"));
    }

    private KTable<?, ?> windowed(CogroupedKStream<String, String> cogrouped) {
        return switch (params.get("kind").textValue()) {
            case "session" -> cogrouped.windowedBy(sessions()).aggregate(first(), MERGE, keptWindows());
            case "sliding" -> cogrouped.windowedBy(sliding()).aggregate(first(), keptWindows());
            default -> cogrouped.windowedBy(time()).aggregate(first(), keptWindows());
        };
    }

    private KTable<Windowed<String>, Long> counted(KGroupedStream<String, String> grouped) {
        return switch (params.get("kind").textValue()) {
            case "session" -> grouped.windowedBy(sessions()).count();
            case "sliding" -> grouped.windowedBy(sliding()).count();
            default -> grouped.windowedBy(time()).count();
        };
    }

    private KTable<Windowed<String>, String> closed(KGroupedStream<String, String> grouped) {
        EmitStrategy close = EmitStrategy.onWindowClose();
        return switch (params.get("kind").textValue()) {
            case "session" -> grouped.windowedBy(sessions()).emitStrategy(close).aggregate(first(), ADD, MERGE, keptWindows());
            case "sliding" -> grouped.windowedBy(sliding()).emitStrategy(close).aggregate(first(), ADD, keptWindows());
            default -> grouped.windowedBy(time()).emitStrategy(close).aggregate(first(), ADD, keptWindows());
        };
    }
}
