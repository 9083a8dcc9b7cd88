package crossstream.peer;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Aggregations of the left topic, by {@code --mode aggregate-…}; amounts are summed as doubles. */
final class Aggregations {
    private static final Serde<String> KEY = Serdes.String();
    private static final Serde<byte[]> VALUE = Serdes.ByteArray();

    private final StreamsBuilder builder;
    private final String input;
    private final String output;
    private final Duration size;
    private final Duration advance;

    Aggregations(StreamsBuilder builder, Arguments arguments, String prefix) {
        this.builder = builder;
        this.input = arguments.text(prefix + "left");
        this.output = arguments.text(prefix + "output");
        this.size = Duration.ofMillis(arguments.number("window-ms", 60_000));
        this.advance = Duration.ofMillis(arguments.number("advance-ms", 10_000));
    }

    void build(String mode) {
        switch (mode) {
            case "aggregate-count" -> stream().groupByKey().count()
                .toStream().to(output, Produced.with(KEY, Serdes.Long()));
            case "aggregate-tumbling" -> amounts().groupByKey(Grouped.with(KEY, Serdes.Double()))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(size))
                .reduce(Double::sum)
                .toStream().to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, size.toMillis()), Serdes.Double()));
            case "aggregate-hopping" -> stream().groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(size).advanceBy(advance)).count()
                .toStream().to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, size.toMillis()), Serdes.Long()));
            case "aggregate-session" -> stream().groupByKey()
                .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(size)).count()
                .toStream().to(output, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
            case "aggregate-table" -> table().toStream().to(output, Produced.with(KEY, Serdes.Double()));
            case "aggregate-reduce" -> amounts().groupByKey(Grouped.with(KEY, Serdes.Double())).reduce(Double::sum)
                .toStream().to(output, Produced.with(KEY, Serdes.Double()));
            default -> throw new IllegalArgumentException("unknown --mode " + mode);
        }
    }

    /** The sum of the amounts of each customer's orders. */
    private KTable<String, Double> table() {
        return builder.table(input, Consumed.with(KEY, VALUE))
            .groupBy(
                (key, order) -> KeyValue.pair(Json.field(order, "customer_id"), amount(order)),
                Grouped.with(KEY, Serdes.Double()))
            .aggregate(
                () -> 0.0,
                (key, value, sum) -> sum + value,
                (key, value, sum) -> sum - value,
                Materialized.with(KEY, Serdes.Double()));
    }

    private KStream<String, byte[]> stream() {
        return builder.stream(input, Consumed.with(KEY, VALUE));
    }

    private KStream<String, Double> amounts() {
        return stream().mapValues(Aggregations::amount);
    }

    private static Double amount(byte[] order) {
        return Double.valueOf(Json.field(order, "amount"));
    }
}
