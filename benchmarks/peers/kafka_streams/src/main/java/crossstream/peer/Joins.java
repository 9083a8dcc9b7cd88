package crossstream.peer;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;

/**
 * The topology: two topics, one join by `--mode` and `--type`, one topic with the results; and the same once more over
 * the topics of `--warm-left`, `--warm-right` and `--warm-output`, if given, to warm up with.
 */
final class Joins {
    private static final Serde<String> KEY = Serdes.String();
    private static final Serde<byte[]> VALUE = Serdes.ByteArray();
    private static final ValueJoiner<byte[], byte[], byte[]> JOINER = Json::joined;

    private final Arguments arguments;
    private final String prefix;
    private final StreamsBuilder builder;

    private Joins(Arguments arguments, String prefix, StreamsBuilder builder) {
        this.arguments = arguments;
        this.prefix = prefix;
        this.builder = builder;
    }

    static StreamsBuilder of(Arguments arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        new Joins(arguments, "", builder).build();
        if (arguments.given().containsKey("warm-left")) {
            new Joins(arguments, "warm-", builder).build();
        }
        return builder;
    }

    private void build() {
        if (arguments.text("mode").startsWith("aggregate-")) {
            new Aggregations(builder, arguments, prefix).build(arguments.text("mode"));
            return;
        }
        if (arguments.text("mode").equals("fk-avro")) {
            new AvroJoin(builder, arguments, prefix).build();
            return;
        }
        String mode = arguments.text("mode");
        KStream<String, byte[]> results = mode.startsWith("nexmark-") ? new Nexmark(builder, arguments, prefix).build(mode) : switch (mode) {
            case "fk" -> foreignKey().toStream();
            case "fk-chain" -> chain().toStream();
            case "table-table" -> tableTable().toStream();
            case "stream-stream" -> streamStream();
            case "stream-table" -> streamTable();
            case "stream-global" -> streamGlobal();
            default -> throw new IllegalArgumentException("unknown --mode " + mode);
        };
        results.to(arguments.text(prefix + "output"), Produced.with(KEY, VALUE));
    }

    private KTable<String, byte[]> foreignKey() {
        KTable<String, byte[]> left = table("left");
        KTable<String, byte[]> right = table("right");
        Function<byte[], String> extractor = foreignKeyOf();
        return switch (type()) {
            case "inner" -> left.join(right, extractor, JOINER);
            case "left" -> left.leftJoin(right, extractor, JOINER);
            default -> throw noSuchType();
        };
    }

    /**
     * Left rows with the rows of several right tables: `--right a,b,c`, referred to by `--foreign-key x,y,z`. Each join
     * passes on what the next ones and the result need: `--kept` of the left row, `--taken` of a right one (`;` between
     * the tables, `field=name` for another name).
     */
    private KTable<String, byte[]> chain() {
        String[] tables = arguments.text(prefix + "right").split(",");
        String[] keys = arguments.text("foreign-key").split(",");
        String[] taken = arguments.text("taken").split(";");
        Map<String, String> kept = Json.names(arguments.text("kept").split(","));
        KTable<String, byte[]> result = table("left");
        for (int i = 0; i < tables.length; i++) {
            String key = keys[i];
            Map<String, String> left = new LinkedHashMap<>(kept);
            for (int later = i + 1; later < keys.length; later++) {
                left.put(keys[later], keys[later]);
            }
            Map<String, String> right = Json.names(taken[i].split(","));
            KTable<String, byte[]> other = builder.table(tables[i], Consumed.with(KEY, VALUE));
            Function<byte[], String> extractor = value -> Json.field(value, key);
            ValueJoiner<byte[], byte[], byte[]> joiner = (row, partner) -> Json.joined(row, left, partner, right);
            result = result.join(other, extractor, joiner, Materialized.with(KEY, VALUE));
            right.forEach((field, name) -> kept.put(name, name));
        }
        return result;
    }

    private KTable<String, byte[]> tableTable() {
        KTable<String, byte[]> left = table("left");
        KTable<String, byte[]> right = table("right");
        return switch (type()) {
            case "inner" -> left.join(right, JOINER);
            case "left" -> left.leftJoin(right, JOINER);
            case "outer" -> left.outerJoin(right, JOINER);
            default -> throw noSuchType();
        };
    }

    private KStream<String, byte[]> streamStream() {
        KStream<String, byte[]> left = stream("left");
        KStream<String, byte[]> right = stream("right");
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(
            Duration.ofMillis(arguments.number("window-ms", 10_000)), Duration.ofMillis(arguments.number("grace-ms", 0)));
        StreamJoined<String, byte[], byte[]> with = StreamJoined.with(KEY, VALUE, VALUE);
        return switch (type()) {
            case "inner" -> left.join(right, JOINER, windows, with);
            case "left" -> left.leftJoin(right, JOINER, windows, with);
            case "outer" -> left.outerJoin(right, JOINER, windows, with);
            default -> throw noSuchType();
        };
    }

    private KStream<String, byte[]> streamTable() {
        KStream<String, byte[]> left = stream("left");
        KTable<String, byte[]> right = table("right");
        Joined<String, byte[], byte[]> with = Joined.with(KEY, VALUE, VALUE);
        return switch (type()) {
            case "inner" -> left.join(right, JOINER, with);
            case "left" -> left.leftJoin(right, JOINER, with);
            default -> throw noSuchType();
        };
    }

    private KStream<String, byte[]> streamGlobal() {
        KStream<String, byte[]> left = stream("left");
        GlobalKTable<String, byte[]> right = builder.globalTable(arguments.text(prefix + "right"), Consumed.with(KEY, VALUE));
        Function<byte[], String> extractor = foreignKeyOf();
        return switch (type()) {
            case "inner" -> left.join(right, (key, value) -> value == null ? null : extractor.apply(value), JOINER);
            case "left" -> left.leftJoin(right, (key, value) -> value == null ? null : extractor.apply(value), JOINER);
            default -> throw noSuchType();
        };
    }

    private Function<byte[], String> foreignKeyOf() {
        String field = arguments.text("foreign-key");
        return value -> Json.field(value, field);
    }

    private KStream<String, byte[]> stream(String side) {
        return builder.stream(arguments.text(prefix + side), Consumed.with(KEY, VALUE));
    }

    private KTable<String, byte[]> table(String side) {
        return builder.table(arguments.text(prefix + side), Consumed.with(KEY, VALUE));
    }

    private String type() {
        return arguments.text("type", "inner");
    }

    private IllegalArgumentException noSuchType() {
        return new IllegalArgumentException("no " + type() + " join in mode " + arguments.text("mode"));
    }
}
