package crossstream.oracle;

import crossstream.oracle.Graphs.Step;
import crossstream.oracle.Values.Row;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.state.WindowStore;

/** Aggregations of a graph: of streams, in windows, of tables. */
final class Aggregates {
    private static final Initializer<Object> FIRST = () -> Values.NOTHING;
    private static final Merger<Object, Object> MERGE = (key, left, right) -> Values.merged((Row) left, (Row) right);

    private Aggregates() { }

    static KTable<?, ?> of(Step step) {
        KGroupedStream<Object, Object> groups = step.text("by").equals("s")
            ? step.stream(0).groupBy((key, value) -> (Object) Values.letter(value)) : step.stream(0).groupByKey(step.grouped("one"));
        Aggregator<Object, Object, Object> add = (key, value, total) -> Values.added((Row) total, step.refused(value));
        if (step.has(1)) {
            return cogrouped(step, groups.cogroup(add).cogroup(step.stream(1).groupByKey(step.grouped("other")), add));
        }
        Reducer<Object> plus = (total, value) -> Values.reduced(total, step.refused(value));
        if (step.field("windows").isNull()) {
            return switch (step.text("fn")) {
                case "count" -> groups.count();
                case "reduce" -> groups.reduce(plus);
                default -> groups.aggregate(FIRST, add);
            };
        }
        EmitStrategy emit = flag(step, "close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        if (kind(step).equals("session")) {
            SessionWindowedKStream<Object, Object> windowed = groups.windowedBy(sessions(step)).emitStrategy(emit);
            return switch (step.text("fn")) {
                case "count" -> windowed.count();
                case "reduce" -> windowed.reduce(plus);
                default -> windowed.aggregate(FIRST, add, MERGE);
            };
        }
        TimeWindowedKStream<Object, Object> windowed = switch (kind(step)) {
            case "sliding" -> groups.windowedBy(sliding(step));
            case "unlimited" -> groups.windowedBy(UnlimitedWindows.of());
            default -> groups.windowedBy(time(step));
        };
        if (!flag(step, "close")) {
            return switch (step.text("fn")) {
                case "count" -> windowed.count();
                case "reduce" -> windowed.reduce(plus);
                default -> windowed.aggregate(FIRST, add);
            };
        }
        windowed = windowed.emitStrategy(emit);
        return switch (step.text("fn")) {
            case "count" -> windowed.count(step.<Long, WindowStore<Bytes, byte[]>>retained().withValueSerde(Serdes.Long()));
            case "reduce" -> windowed.reduce(plus, step.retained());
            default -> windowed.aggregate(FIRST, add, step.retained());
        };
    }

    private static KTable<?, ?> cogrouped(Step step, CogroupedKStream<Object, Object> groups) {
        if (step.field("windows").isNull()) {
            return groups.aggregate(FIRST);
        }
        if (kind(step).equals("session")) {
            SessionWindowedCogroupedKStream<Object, Object> windowed = groups.windowedBy(sessions(step));
            return windowed.aggregate(FIRST, MERGE);
        }
        TimeWindowedCogroupedKStream<Object, Object> windowed = switch (kind(step)) {
            case "sliding" -> groups.windowedBy(sliding(step));
            case "unlimited" -> groups.windowedBy(UnlimitedWindows.of());
            default -> groups.windowedBy(time(step));
        };
        return windowed.aggregate(FIRST);
    }

    static KTable<Object, Object> ofTable(Step step) {
        boolean rows = step.text("by").equals("key, row");
        KGroupedTable<Object, Object> groups = step.table(0).groupBy((key, value) -> KeyValue.pair((Object) Values.letter(value),
            rows ? new Row(Values.number(value), Values.letter(value), 1.0) : value));
        return switch (step.text("fn")) {
            case "count" -> groups.count().mapValues(count -> (Object) count);
            case "reduce" -> groups.reduce(Values::plus, Values::minus);
            default -> groups.aggregate(FIRST, (key, value, total) -> Values.put((Row) total, step.refused(value)),
                (key, value, total) -> Values.taken((Row) total, value));
        };
    }

    // -- windows

    private static String kind(Step step) {
        return step.field("windows").get("kind").textValue();
    }

    private static boolean flag(Step step, String name) {
        return step.field("windows").get(name).booleanValue();
    }

    private static Duration duration(Step step, String name) {
        return Duration.ofMillis(step.field("windows").get(name).longValue());
    }

    private static TimeWindows time(Step step) {
        return TimeWindows.ofSizeAndGrace(duration(step, "size"), duration(step, "grace")).advanceBy(duration(step, "advance"));
    }

    private static SessionWindows sessions(Step step) {
        return SessionWindows.ofInactivityGapAndGrace(duration(step, "size"), duration(step, "grace"));
    }

    private static SlidingWindows sliding(Step step) {
        return SlidingWindows.ofTimeDifferenceAndGrace(duration(step, "size"), duration(step, "grace"));
    }
}
