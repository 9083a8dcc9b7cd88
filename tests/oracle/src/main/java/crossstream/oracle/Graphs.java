package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * A graph of steps as in `tests/laws/compositions/graphs.py`, which names their fields, as a topology. Every table is
 * stored, and exceptions of functions skip their record. What a step makes goes to the topic "out-" and its number, with its keys as texts.
 */
final class Graphs {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<Object> KEY = new Values.KeySerde();
    private static final Serde<Object> VALUE = new Values.ValueSerde();

    private final StreamsBuilder builder = new StreamsBuilder();
    private final List<Object> nodes = new ArrayList<>();

    private Graphs(JsonNode steps) {
        for (JsonNode step : steps) {
            nodes.add(new Step(step, nodes.size()).built());
        }
    }

    /** {"expected": for each input the records of all steps: the number of the step, key, value, timestamp}. */
    static ObjectNode run(JsonNode request, Path states, String id) {
        Graphs graph = new Graphs(request.get("graph"));
        Properties settings = Windowing.settings(states, id);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Values.KeySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Values.ValueSerde.class);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueProcessingExceptionHandler.class);
        ObjectNode response = JSON.createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(graph.builder.build(settings), settings)) {
            response.set("expected", graph.fed(request.get("inputs"), driver));
        }
        return response;
    }

    private ArrayNode fed(JsonNode inputs, TopologyTestDriver driver) {
        Map<Integer, TestInputTopic<Object, Object>> topics = new HashMap<>();
        Map<Integer, TestOutputTopic<Object, Object>> outs = new HashMap<>();
        for (int number = 0; number < nodes.size(); number++) {
            if (!(nodes.get(number) instanceof GlobalKTable)) {
                outs.put(number, driver.createOutputTopic("out-" + number, KEY.deserializer(), VALUE.deserializer()));
            }
        }
        ArrayNode expected = JSON.createArrayNode();
        for (JsonNode input : inputs) {
            topics.computeIfAbsent(input.get("source").intValue(), number -> driver.createInputTopic("in-" + number, KEY.serializer(), VALUE.serializer()))
                .pipeInput(new TestRecord<>(input.get("key").textValue(), Values.of(input.get("value")), null, input.get("ts").longValue()));
            ArrayNode results = expected.addArray();
            outs.forEach((number, out) -> out.readRecordsToList().forEach(one ->
                results.addArray().add(number).add(Values.text(one.key())).add(JSON.<JsonNode>valueToTree(one.value())).add(one.timestamp())));
        }
        return expected;
    }

    /** A step, whose fields are those of the request. */
    final class Step {
        private final JsonNode fields;
        private final int number;
        private final String fn;
        private final boolean fails;

        Step(JsonNode fields, int number) {
            this.fields = fields;
            this.number = number;
            this.fn = text("fn");
            this.fails = fields.get("fails").booleanValue();
        }

        Object built() {
            Object made = made();
            if (made instanceof GlobalKTable) {
                return made;
            }
            @SuppressWarnings("unchecked")
            KStream<Object, Object> changes = made instanceof KTable ? ((KTable<Object, Object>) made).toStream() : (KStream<Object, Object>) made;
            changes.selectKey((key, value) -> (Object) Values.text(key)).to("out-" + number, Produced.with(KEY, VALUE));
            return made;
        }

        private Object made() {
            return switch (text("op")) {
                case "stream" -> builder.<Object, Object>stream("in-" + number);
                case "table" -> builder.table("in-" + number, kept());
                case "global" -> builder.globalTable("in-" + number, kept());
                case "aggregate" -> parent(0) instanceof KTable ? ofTable() : ofStream();
                case "join" -> parent(0) instanceof KTable ? joinOfTables() : joinOfStream();
                case "fk" -> fn.equals("inner") ? table(0).join(table(1), Values::letter, joiner(), kept())
                    : table(0).leftJoin(table(1), Values::letter, joiner(), kept());
                default -> parent(0) instanceof KTable ? onTable() : onStream();
            };
        }

        // -- fields

        String text(String name) {
            return fields.get(name).textValue();
        }

        Duration duration(String name) {
            return Duration.ofMillis(fields.get(name).longValue());
        }

        private Object parent(int place) {
            return nodes.get(fields.get("parents").get(place).intValue());
        }

        /** With a node of its own, for Kafka brings the records of a node to the partitions of their keys but once. */
        @SuppressWarnings("unchecked")
        KStream<Object, Object> stream(int place) {
            return ((KStream<Object, Object>) parent(place)).filter((key, value) -> true);
        }

        @SuppressWarnings("unchecked")
        KTable<Object, Object> table(int place) {
            return (KTable<Object, Object>) parent(place);
        }

        boolean has(int place) {
            return fields.get("parents").has(place);
        }

        JsonNode field(String name) {
            return fields.get(name);
        }

        private ValueJoiner<Object, Object, Object> joiner() {
            return switch (text("form")) {
                case "keep-left" -> (left, right) -> left == null ? right : left;
                case "keep-right" -> (left, right) -> right == null ? left : right;
                default -> (left, right) -> Values.joined(left, refused(right));
            };
        }

        /** With a name: of those of a cogroup without names Kafka calls all repartition topics the same. */
        Grouped<Object, Object> grouped(String name) {
            return Grouped.as("group-" + number + "-" + name);
        }

        Object refused(Object value) {
            return Values.refusing(value, fails);
        }

        /** The store of a table. */
        private Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept() {
            return Materialized.<Object, Object, KeyValueStore<Bytes, byte[]>>as("store-" + number)
                .withKeySerde(KEY).withValueSerde(VALUE).withStoreType(Materialized.StoreType.IN_MEMORY);
        }

        /** A store that keeps windows until they come out: by default Kafka's retires some before (semantics 8.20). */
        <V, S extends StateStore> Materialized<Object, V, S> retained() {
            return Materialized.<Object, V, S>as("windows-" + number).withRetention(Duration.ofHours(1));
        }

        // -- what it makes

        private Object onStream() {
            KStream<Object, Object> stream = stream(0);
            return switch (text("op")) {
                case "filter" -> stream.filter((key, value) -> value != null && Values.predicate(fn).test(refused(value)));
                case "filter_not" -> stream.filter((key, value) -> value != null && !Values.predicate(fn).test(refused(value)));
                case "map_values" -> stream.mapValues(value -> value == null ? null : Values.mapper(fn).apply(refused(value)));
                case "peek" -> stream.peek((key, value) -> refused(value));
                case "present" -> stream.filter((key, value) -> key != null && value != null);
                case "select_key" -> stream.selectKey((key, value) -> (Object) Values.letter(value));
                case "map" -> stream.map((key, value) -> pair(Values.letter(value), value == null ? null : Values.joined(refused(value), null)));
                case "transform" -> stream.map((key, value) -> pair(key, value == null ? null : Values.joined(value, null)));
                case "flat_map" -> stream.flatMap((key, value) ->
                    Values.copies(refused(value)).stream().map(one -> pair(Values.letter(value), one)).toList());
                case "flat_map_values" -> stream.flatMapValues(value -> Values.copies(refused(value)));
                case "branches" -> branches(stream);
                case "branch" -> branch(stream);
                case "merge" -> stream.merge(stream(1));
                case "repartition" -> stream.repartition();
                case "process", "process_values" -> Counting.on(stream, "seen-" + number, text("op").equals("process_values"));
                case "to_table" -> stream.toTable(kept());
                default -> throw new IllegalArgumentException("no operator " + fields);
            };
        }

        private static KeyValue<Object, Object> pair(Object key, Object value) {
            return KeyValue.pair(key, value);
        }

        private BranchedKStream<Object, Object> some(KStream<Object, Object> stream) {
            return stream.split(Named.as("split-" + number)).branch((key, value) -> value != null && Values.predicate(fn).test(value), Branched.as("some"));
        }

        private KStream<Object, Object> branches(KStream<Object, Object> stream) {
            Map<String, KStream<Object, Object>> ways = some(stream).branch((key, value) -> value != null, Branched.as("others")).noDefaultBranch();
            return ways.get("split-" + number + "some").mapValues(value -> (Object) Values.joined(value, value))
                .merge(ways.get("split-" + number + "others").mapValues(value -> (Object) Values.joined(value, null)));
        }

        private KStream<Object, Object> branch(KStream<Object, Object> stream) {
            return some(stream).defaultBranch(Branched.as("rest")).get("split-" + number + text("by"));
        }

        /** Kept once more, so that what reads it knows the row before: see semantics 8.23 to 8.25. */
        private KTable<Object, Object> stored(KTable<?, ?> table) {
            @SuppressWarnings("unchecked")
            KTable<Object, Object> given = (KTable<Object, Object>) table;
            return given.mapValues(value -> value, kept());
        }

        private Object onTable() {
            KTable<Object, Object> table = table(0);
            return switch (text("op")) {
                case "filter" -> table.filter((key, value) -> Values.predicate(fn).test(refused(value)), kept());
                case "filter_not" -> table.filterNot((key, value) -> Values.predicate(fn).test(refused(value)), kept());
                case "map_values" -> table.mapValues(value -> Values.mapper(fn).apply(refused(value)), kept());
                case "to_stream" -> table.toStream((key, value) -> text("by").equals("s") ? Values.letter(value)
                    : text("by").equals("inner") ? ((Windowed<?>) key).key() : key);
                case "suppress" -> stored(suppressed(table));
                default -> throw new IllegalArgumentException("no operator " + fields);
            };
        }

        @SuppressWarnings({"unchecked", "rawtypes"})
        private KTable<?, ?> suppressed(KTable table) {
            return fn.equals("closes") ? table.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                : table.suppress(Suppressed.untilTimeLimit(duration("within"), BufferConfig.unbounded()));
        }

        private Object ofStream() {
            return stored(Aggregates.of(this));
        }

        /** Groups without rows are left out: Kafka counts 0 for them. */
        private Object ofTable() {
            return fn.equals("count") ? Aggregates.ofTable(this).filter((key, value) -> Values.number(value) > 0, kept()) : stored(Aggregates.ofTable(this));
        }

        private Object joinOfStream() {
            boolean left = fn.equals("left");
            if (parent(1) instanceof GlobalKTable) {
                @SuppressWarnings("unchecked")
                GlobalKTable<Object, Object> rows = (GlobalKTable<Object, Object>) parent(1);
                return left ? stream(0).leftJoin(rows, (key, value) -> (Object) Values.letter(value), joiner())
                    : stream(0).join(rows, (key, value) -> (Object) Values.letter(value), joiner());
            }
            if (parent(1) instanceof KTable) {
                return left ? stream(0).leftJoin(table(1), joiner()) : stream(0).join(table(1), joiner());
            }
            JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(duration("within"), duration("grace"));
            return switch (fn) {
                case "inner" -> stream(0).join(stream(1), joiner(), near);
                case "left" -> stream(0).leftJoin(stream(1), joiner(), near);
                default -> stream(0).outerJoin(stream(1), joiner(), near);
            };
        }

        private Object joinOfTables() {
            return switch (fn) {
                case "inner" -> table(0).join(table(1), joiner(), kept());
                case "left" -> table(0).leftJoin(table(1), joiner(), kept());
                default -> table(0).outerJoin(table(1), joiner(), kept());
            };
        }
    }
}
