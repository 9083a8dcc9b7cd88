package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import crossstream.oracle.Case.Input;
import crossstream.oracle.Case.Join;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The topology of a case: one topic per side, the joins in order, the last join's result to the topic "output" and,
 * if it is a table, to the store "result".
 */
final class Joins {
    static final String OUTPUT = "output";
    static final String RESULT = "result";
    private static final Duration VERSIONS = Duration.ofHours(1);

    private final Case request;
    private final boolean stored;
    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<String, Object> nodes = new HashMap<>();
    private final Map<String, ScalarSerde> keys = new HashMap<>();
    private final Map<String, ScalarSerde> values = new HashMap<>();

    Joins(Case request) {
        this.request = request;
        this.stored = request.last().operator().startsWith("table-table")
            && request.flag("materialized", true) && !request.flag("send_old_values", false);
        chooseSerdes();
    }

    /** The topology; changes, where the case asks for old values, receives what the result forwards. */
    Topology build(Properties settings, List<OldValues.Seen> changes) {
        request.joins().forEach(join -> nodes.put(join.id(), join(join)));
        Object result = nodes.get(request.last().id());
        boolean oldValues = request.flag("send_old_values", false);
        if (oldValues) {
            OldValues.ask(table(request.last().id()));
        } else {
            stream(result).to(OUTPUT, Produced.with(outputKey(), outputValue()));
        }
        Topology topology = builder.build(settings);
        if (oldValues) {
            OldValues.attach(topology, table(request.last().id()), changes);
        }
        return topology;
    }

    Serde<Object> key(String side) {
        return keys.get(side);
    }

    Serde<Object> value(String side) {
        return values.get(side);
    }

    Serde<Object> outputKey() {
        return keys.get(request.last().id());
    }

    Serde<Object> outputValue() {
        return values.get(request.last().id());
    }

    /** Whether the last result is kept in the store "result". */
    boolean stored() {
        return stored;
    }

    /** The input sides that some join reads: each has a topic. */
    Set<String> sides() {
        return nodes.keySet().stream().filter(name -> request.joins().stream().noneMatch(j -> j.id().equals(name)))
            .collect(Collectors.toSet());
    }

    // -- serdes

    private void chooseSerdes() {
        Map<String, List<Object>> keysOf = new HashMap<>();
        Map<String, List<Object>> valuesOf = new HashMap<>();
        for (Input input : request.inputs()) {
            keysOf.computeIfAbsent(input.side(), s -> new ArrayList<>()).add(input.key());
            valuesOf.computeIfAbsent(input.side(), s -> new ArrayList<>()).add(input.value());
        }
        Set<String> looked = new HashSet<>(); // sides that are read by another key than the result's
        request.joins().stream().filter(Joins::byOtherKey).forEach(join -> looked.add(join.right()));
        List<Object> shared = new ArrayList<>();
        keysOf.forEach((side, found) -> shared.addAll(looked.contains(side) ? List.of() : found));
        ScalarSerde sharedKey = ScalarSerde.of(shared, ScalarSerde.STRING);
        for (Join join : request.joins()) {
            for (String side : List.of(join.left(), join.right())) {
                values.computeIfAbsent(side, s -> ScalarSerde.of(valuesOf.getOrDefault(s, List.of()), ScalarSerde.STRING));
            }
            keys.putIfAbsent(join.left(), sharedKey);
            keys.computeIfAbsent(join.right(), side -> byOtherKey(join)
                ? ScalarSerde.of(keysOf.getOrDefault(side, List.of()), otherKey(join)) : sharedKey);
            keys.put(join.id(), sharedKey);
            values.put(join.id(), Functions.joined(join.params().get("joiner"), values.get(join.left()), values.get(join.right())));
        }
    }

    private static boolean byOtherKey(Join join) {
        return join.by("table-table-fk") || join.by("stream-globaltable");
    }

    private ScalarSerde otherKey(Join join) {
        JsonNode spec = join.params().path(join.by("table-table-fk") ? "fk_extractor" : "key_mapper");
        return Functions.extracted(spec, keys.get(join.left()), values.get(join.left()));
    }

    // -- sources

    private Consumed<Object, Object> consumed(String side) {
        return Consumed.with(key(side), value(side));
    }

    @SuppressWarnings("unchecked")
    private KStream<Object, Object> stream(String name) {
        return (KStream<Object, Object>) nodes.computeIfAbsent(name, side -> builder.stream(side, consumed(side)));
    }

    @SuppressWarnings("unchecked")
    private static KStream<Object, Object> stream(Object result) {
        return result instanceof KTable ? ((KTable<Object, Object>) result).toStream() : (KStream<Object, Object>) result;
    }

    @SuppressWarnings("unchecked")
    private KTable<Object, Object> table(String name) {
        return (KTable<Object, Object>) nodes.computeIfAbsent(name, side -> {
            Duration history = history(side);
            if (history == null) {
                return builder.table(side, consumed(side));
            }
            return builder.table(side, consumed(side), Materialized.<Object, Object>as(
                Stores.persistentVersionedKeyValueStore(side + "-versions", history)).withKeySerde(key(side)).withValueSerde(value(side)));
        });
    }

    private Duration history(String side) {
        boolean streamTable = side.equals("right") && request.params().has("table_versioned_ms");
        return request.duration(streamTable ? "table_versioned_ms" : side + "_versioned_ms");
    }

    @SuppressWarnings("unchecked")
    private GlobalKTable<Object, Object> global(String name) {
        return (GlobalKTable<Object, Object>) nodes.computeIfAbsent(name, side -> builder.globalTable(side, consumed(side)));
    }

    // -- joins

    private Object join(Join join) {
        ValueJoinerWithKey<Object, Object, Object, Object> joiner = Functions.joiner(join.params().get("joiner"));
        return switch (join.operator()) {
            case "stream-stream" -> streamStream(join, joiner);
            case "stream-table" -> streamTable(join, joiner);
            case "stream-globaltable" -> streamGlobal(join, joiner);
            case "table-table" -> tableTable(join, (l, r) -> joiner.apply(null, l, r));
            case "table-table-fk" -> foreignKey(join, (l, r) -> joiner.apply(null, l, r));
            case "derived" -> derived(join);
            case "suppress" -> switch (join.type()) {
                case "time-limit" -> Suppressing.limited(join, table(join.left()));
                case "window-closes" -> Suppressing.closed(join, stream(join.left()), key(join.left()), value(join.left()));
                default -> Suppressing.ticking(join, stream(join.left()));
            };
            default -> throw new IllegalArgumentException("unknown operator " + join.operator());
        };
    }

    /** An operator of one parent, or two streams merged: so a case can say which ways a record takes, and in which order. */
    private Object derived(Join join) {
        String parent = join.left();
        String what = join.type().replaceAll(" (kept|with versions)$", "");
        var kept = what.equals(join.type()) ? null : Materialized.<Object, Object, KeyValueStore<Bytes, byte[]>>as(join.id() + "-kept");
        if (join.type().endsWith("versions")) {
            kept = Materialized.as(Stores.persistentVersionedKeyValueStore(join.id() + "-versions", VERSIONS));
        }
        if (kept != null) {
            kept = kept.withKeySerde(key(parent)).withValueSerde(value(parent));
        }
        return switch (what) {
            case "repartition" -> stream(parent).repartition(Repartitioned.with(key(parent), value(parent)));
            case "merge" -> stream(parent).merge(stream(join.right()));
            case "to table" -> stream(parent).toTable(kept == null ? Materialized.with(key(parent), value(parent)) : kept);
            case "to stream" -> table(parent).toStream();
            case "to stream by value" -> table(parent).toStream((key, value) -> Derived.named(value));
            case "map", "map some", "filter", "filter not" -> Derived.table(what, table(parent), kept);
            default -> Derived.stream(what, stream(parent));
        };
    }

    private Object streamStream(Join join, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
        KStream<Object, Object> left = stream(join.left());
        KStream<Object, Object> right = stream(join.right());
        StreamJoined<Object, Object, Object> with = StreamJoined.with(key(join.left()), value(join.left()), value(join.right()));
        return switch (join.type()) {
            case "inner" -> left.join(right, joiner, request.windows(join), with);
            case "left" -> left.leftJoin(right, joiner, request.windows(join), with);
            case "outer" -> left.outerJoin(right, joiner, request.windows(join), with);
            default -> throw noSuch(join);
        };
    }

    private Object streamTable(Join join, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
        KStream<Object, Object> left = stream(join.left());
        KTable<Object, Object> right = table(join.right());
        Duration grace = request.duration("stream_grace_ms");
        Joined<Object, Object, Object> with = Joined.with(key(join.left()), value(join.left()), value(join.right()));
        if (grace != null) {
            with = with.withGracePeriod(grace);
        }
        return switch (join.type()) {
            case "inner" -> left.join(right, joiner, with);
            case "left" -> left.leftJoin(right, joiner, with);
            default -> throw noSuch(join);
        };
    }

    private Object streamGlobal(Join join, ValueJoinerWithKey<Object, Object, Object, Object> joiner) {
        KStream<Object, Object> left = stream(join.left());
        GlobalKTable<Object, Object> right = global(join.right());
        KeyValueMapper<Object, Object, Object> mapper = Functions.extractor(join.params().get("key_mapper"))::apply;
        return switch (join.type()) {
            case "inner" -> left.join(right, mapper, joiner);
            case "left" -> left.leftJoin(right, mapper, joiner);
            default -> throw noSuch(join);
        };
    }

    private Object tableTable(Join join, ValueJoiner<Object, Object, Object> joiner) {
        KTable<Object, Object> left = table(join.left());
        KTable<Object, Object> right = table(join.right());
        var kept = kept(join);
        return switch (join.type()) {
            case "inner" -> kept == null ? left.join(right, joiner) : left.join(right, joiner, kept);
            case "left" -> kept == null ? left.leftJoin(right, joiner) : left.leftJoin(right, joiner, kept);
            case "outer" -> kept == null ? left.outerJoin(right, joiner) : left.outerJoin(right, joiner, kept);
            default -> throw noSuch(join);
        };
    }

    private Object foreignKey(Join join, ValueJoiner<Object, Object, Object> joiner) {
        KTable<Object, Object> left = table(join.left());
        KTable<Object, Object> right = table(join.right());
        BiFunction<Object, Object, Object> extractor = Functions.extractor(join.params().get("fk_extractor"));
        var kept = kept(join);
        return switch (join.type()) {
            case "inner" -> kept == null ? left.join(right, extractor, joiner) : left.join(right, extractor, joiner, kept);
            case "left" -> kept == null ? left.leftJoin(right, extractor, joiner) : left.leftJoin(right, extractor, joiner, kept);
            default -> throw noSuch(join);
        };
    }

    /**
     * Where a join's result is stored, or null if it is not. The last one is, unless the case says otherwise. An earlier
     * one is if it says so, and where a foreign-key join makes or reads it, which need its serdes: given here only.
     */
    private Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept(Join join) {
        if (join.equals(request.last())) {
            return stored ? Materialized.<Object, Object, KeyValueStore<Bytes, byte[]>>as(RESULT)
                .withKeySerde(outputKey()).withValueSerde(outputValue()) : null;
        }
        boolean readByForeignKey = request.joins().stream()
            .anyMatch(j -> j.by("table-table-fk") && (j.left().equals(join.id()) || j.right().equals(join.id())));
        return join.materialized() || join.by("table-table-fk") || readByForeignKey
            ? Materialized.with(keys.get(join.id()), values.get(join.id())) : null;
    }

    private static IllegalArgumentException noSuch(Join join) {
        return new IllegalArgumentException("no " + join.type() + " join for " + join.operator());
    }
}
