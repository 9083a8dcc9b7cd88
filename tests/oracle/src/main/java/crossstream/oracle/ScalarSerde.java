package crossstream.oracle;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Objects;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Strings and numbers of a case in the bytes of Kafka's own serializers: UTF-8, big-endian 4 or 8 bytes, IEEE double.
 * The bytes matter: they decide the order of results and of store scans.
 */
enum ScalarSerde implements Serde<Object> {
    STRING {
        @Override byte[] write(Object value) {
            return ((String) value).getBytes(StandardCharsets.UTF_8);
        }

        @Override Object read(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    },
    INT {
        @Override byte[] write(Object value) {
            return ByteBuffer.allocate(4).putInt(Math.toIntExact(((Number) value).longValue())).array();
        }

        @Override Object read(byte[] bytes) {
            return ByteBuffer.wrap(bytes).getInt();
        }
    },
    LONG {
        @Override byte[] write(Object value) {
            return ByteBuffer.allocate(8).putLong(((Number) value).longValue()).array();
        }

        @Override Object read(byte[] bytes) {
            return ByteBuffer.wrap(bytes).getLong();
        }
    },
    DOUBLE {
        @Override byte[] write(Object value) {
            return ByteBuffer.allocate(8).putDouble(((Number) value).doubleValue()).array();
        }

        @Override Object read(byte[] bytes) {
            return ByteBuffer.wrap(bytes).getDouble();
        }
    };

    abstract byte[] write(Object value);

    abstract Object read(byte[] bytes);

    /** The narrowest serde that holds all the values; nulls count for nothing, and without any value it is `otherwise`. */
    static ScalarSerde of(Collection<?> values, ScalarSerde otherwise) {
        return values.stream().filter(Objects::nonNull).map(ScalarSerde::of).reduce(ScalarSerde::widest).orElse(otherwise);
    }

    private static ScalarSerde of(Object value) {
        if (value instanceof String) {
            return STRING;
        }
        return value instanceof Integer ? INT : value instanceof Long ? LONG : DOUBLE;
    }

    static ScalarSerde widest(ScalarSerde a, ScalarSerde b) {
        if ((a == STRING) != (b == STRING)) {
            throw new IllegalArgumentException("strings and numbers among the keys or values of one side");
        }
        return a.ordinal() > b.ordinal() ? a : b;
    }

    @Override
    public Serializer<Object> serializer() {
        return (topic, value) -> value == null ? null : write(value);
    }

    @Override
    public Deserializer<Object> deserializer() {
        return (topic, bytes) -> bytes == null ? null : read(bytes);
    }
}
