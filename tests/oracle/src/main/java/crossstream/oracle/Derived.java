package crossstream.oracle;

import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/** Operators on one stream or table of texts; the same as in `compositions.py`. */
final class Derived {
    private Derived() { }

    /** The operator of that name on a stream. */
    static KStream<Object, Object> stream(String type, KStream<Object, Object> stream) {
        return switch (type) {
            case "same" -> stream.mapValues(value -> value);
            case "re-key" -> stream.selectKey((key, value) -> key);
            case "key of value" -> stream.selectKey((key, value) -> named(value));
            case "map both" -> stream.map((key, value) -> KeyValue.pair(named(value), value == null ? null : value + "^"));
            case "only some" -> stream.filter((key, value) -> value == null || !has(value, "3"));
            case "some to null" -> stream.mapValues(value -> value == null || has(value, "2") ? null : value);
            case "twice" -> stream.flatMapValues(value -> value == null ? List.of() : List.of(value, value + "!"));
            case "under both keys" -> stream.flatMap((key, value) -> List.of(KeyValue.pair(key, value), KeyValue.pair(named(value), value)));
            default -> throw new IllegalArgumentException("no operator " + type);
        };
    }

    /** The operator of that name on a table, kept in a store if one is given. */
    static KTable<Object, Object> table(String type, KTable<Object, Object> table, Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept) {
        return switch (type) {
            case "map" -> kept == null ? table.mapValues(value -> value + "'") : table.mapValues(value -> value + "'", kept);
            case "map some" -> kept == null ? table.mapValues(Derived::some) : table.mapValues(Derived::some, kept);
            case "filter" -> kept == null ? table.filter((key, value) -> !has(value, "3")) : table.filter((key, value) -> !has(value, "3"), kept);
            case "filter not" -> kept == null ? table.filterNot((key, value) -> has(value, "3")) : table.filterNot((key, value) -> has(value, "3"), kept);
            default -> throw new IllegalArgumentException("no operator " + type);
        };
    }

    /** The key that a value begins with; null for "-" and for no value. */
    static Object named(Object value) {
        return value == null || value.toString().startsWith("-") ? null : value.toString().substring(0, 1);
    }

    private static Object some(Object value) {
        return has(value, "2") ? null : value;
    }

    private static boolean has(Object value, String text) {
        return value.toString().contains(text);
    }
}
