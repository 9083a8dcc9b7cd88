package crossstream.oracle;

import crossstream.oracle.Case.Join;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

/** Suppressions, and a processor with timers. Durations in milliseconds. */
final class Suppressing {
    private Suppressing() { }

    private static Duration duration(Join join, String name) {
        return Duration.ofMillis(join.params().get(name).longValue());
    }

    /** Until a time limit, with bounds on records and bytes where they are given. */
    static KTable<Object, Object> limited(Join join, KTable<Object, Object> table) {
        BufferConfig<?> buffer = BufferConfig.unbounded();
        if (join.params().has("max_records")) {
            buffer = BufferConfig.maxRecords(join.params().get("max_records").longValue()).emitEarlyWhenFull();
        } else if (join.params().has("max_bytes")) {
            buffer = BufferConfig.maxBytes(join.params().get("max_bytes").longValue()).emitEarlyWhenFull();
        }
        return table.suppress(Suppressed.untilTimeLimit(duration(join, "limit_ms"), buffer));
    }

    /** Counts in windows, each once: the results are "count" under "key@start". */
    static KStream<Object, Object> closed(Join join, KStream<Object, Object> stream, Serde<Object> key, Serde<Object> value) {
        TimeWindows windows = TimeWindows.ofSizeAndGrace(duration(join, "size_ms"), duration(join, "grace_ms")).advanceBy(duration(join, "advance_ms"));
        return stream.groupByKey(Grouped.with(key, value)).windowedBy(windows).count()
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream((windowed, count) -> (Object) (windowed.key() + "@" + windowed.window().start()))
            .mapValues(count -> (Object) count.toString());
    }

    /** Forwards each record, and in stream time "tick" with the time. */
    static KStream<Object, Object> ticking(Join join, KStream<Object, Object> stream) {
        return stream.process(() -> new Processor<Object, Object, Object, Object>() {
            private ProcessorContext<Object, Object> context;

            @Override public void init(ProcessorContext<Object, Object> given) {
                context = given;
                context.schedule(duration(join, "interval_ms"), PunctuationType.STREAM_TIME,
                    time -> context.forward(new Record<>("tick", Long.toString(time), time)));
            }

            @Override public void process(Record<Object, Object> record) {
                context.forward(record.withValue(record.value() + "@" + context.currentStreamTimeMs()));
            }
        });
    }
}
