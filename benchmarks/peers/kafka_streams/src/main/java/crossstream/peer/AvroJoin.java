package crossstream.peer;

import io.apicurio.registry.serde.avro.AvroSerde;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/** The foreign-key join with values in Avro behind Confluent's frame: `--registry` is the URL of Apicurio's own interface. */
final class AvroJoin {
    private static final Serde<String> KEY = Serdes.String();
    private static final Schema JOINED = SchemaBuilder.record("Joined").fields()
        .requiredString("item").requiredDouble("amount").requiredString("customer").requiredString("city").endRecord();

    private final StreamsBuilder builder;
    private final Arguments arguments;
    private final String prefix;
    private final Serde<GenericRecord> value = new AvroSerde<>();

    AvroJoin(StreamsBuilder builder, Arguments arguments, String prefix) {
        this.builder = builder;
        this.arguments = arguments;
        this.prefix = prefix;
        value.configure(Map.of(
            "apicurio.registry.url", arguments.text("registry"),
            "apicurio.registry.auto-register", true,
            "apicurio.registry.headers.enabled", false,
            "apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy4ByteIdHandler",
            "apicurio.registry.use-id", "contentId"), false);
    }

    void build() {
        String field = arguments.text("foreign-key");
        KTable<String, GenericRecord> left = table("left");
        KTable<String, GenericRecord> right = table("right");
        left.join(right, row -> row.get(field).toString(), AvroJoin::joined)
            .toStream().to(arguments.text(prefix + "output"), Produced.with(KEY, value));
    }

    private KTable<String, GenericRecord> table(String side) {
        return builder.table(arguments.text(prefix + side), Consumed.with(KEY, value));
    }

    private static GenericRecord joined(GenericRecord order, GenericRecord customer) {
        GenericRecord made = new GenericData.Record(JOINED);
        made.put("item", order.get("item"));
        made.put("amount", order.get("amount"));
        made.put("customer", customer.get("name"));
        made.put("city", customer.get("city"));
        return made;
    }
}
