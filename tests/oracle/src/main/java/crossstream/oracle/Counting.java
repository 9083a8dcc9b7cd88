package crossstream.oracle;

import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** A processor that adds to each number how many records of its key there were. */
final class Counting extends ContextualProcessor<Object, Object, Object, Object> {
    private final String name;
    private final boolean keepsKey;
    private KeyValueStore<Object, Long> seen;

    private Counting(String name, boolean keepsKey) {
        this.name = name;
        this.keepsKey = keepsKey;
    }

    static KStream<Object, Object> on(KStream<Object, Object> stream, String name, boolean keepsKey) {
        return stream.process(new ProcessorSupplier<Object, Object, Object, Object>() {
            @Override public Processor<Object, Object, Object, Object> get() {
                return new Counting(name, keepsKey);
            }

            @Override public Set<StoreBuilder<?>> stores() {
                return Set.of(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), new Values.KeySerde(), Serdes.Long()));
            }
        });
    }

    @Override public void init(ProcessorContext<Object, Object> context) {
        super.init(context);
        seen = context.getStateStore(name);
    }

    @Override public void process(Record<Object, Object> record) {
        Long before = seen.get(record.key());
        long count = before == null ? 1 : before + 1;
        seen.put(record.key(), count);
        context().forward(record.withKey(keepsKey ? record.key() : Values.letter(record.value())).withValue(Values.counted(record.value(), count)));
    }
}
