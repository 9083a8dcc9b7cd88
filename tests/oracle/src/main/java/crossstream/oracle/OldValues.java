package crossstream.oracle;

import java.lang.reflect.Field;
import java.util.List;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.internals.AbstractStream;
import org.apache.kafka.streams.kstream.internals.Change;
import org.apache.kafka.streams.kstream.internals.KTableImpl;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/** Reads the changes a table forwards, old values included: the public interface shows only the new ones. */
final class OldValues {
    /** One forwarded change; old is null where there was no row. */
    record Seen(Object key, Object value, Object old, long timestamp) { }

    private OldValues() { }

    static void ask(KTable<Object, Object> table) {
        ((KTableImpl<?, ?, ?>) table).enableSendingOldValues(true);
    }

    static void attach(Topology topology, KTable<Object, Object> table, List<Seen> changes) {
        topology.<Object, Change<Object>, Void, Void>addProcessor("old-values", () -> new ContextualProcessor<>() {
            @Override
            public void process(Record<Object, Change<Object>> record) {
                Change<Object> change = record.value();
                changes.add(new Seen(record.key(), change.newValue, change.oldValue, record.timestamp()));
            }
        }, nodeName(table));
    }

    private static String nodeName(KTable<Object, Object> table) {
        try {
            Field name = AbstractStream.class.getDeclaredField("name");
            name.setAccessible(true);
            return (String) name.get(table);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("Kafka Streams no longer names its tables as expected", e);
        }
    }
}
