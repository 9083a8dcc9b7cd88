package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.kstream.Window;
import org.apache.kafka.streams.kstream.Windowed;

/** Values of graphs, rows or whole numbers, and what functions make of them: as `tests/laws/compositions/functions.py`. */
final class Values {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** What begins an aggregate. */
    static final Row NOTHING = new Row(0, null, 0.0);

    private Values() { }

    record Row(long n, String s, Double x) { }

    // -- parts of a value

    static long number(Object value) {
        return value == null ? 0 : value instanceof Row row ? row.n : (Long) value;
    }

    static String letter(Object value) {
        return value == null ? null : value instanceof Row row ? row.s : (Long) value % 2 != 0 ? "a" : "b";
    }

    static Double half(Object value) {
        return value instanceof Row row ? row.x : null;
    }

    // -- functions of one value, by their names

    static Predicate<Object> predicate(String name) {
        return switch (name) {
            case "n > 0" -> value -> number(value) > 0;
            case "n odd" -> value -> number(value) % 2 != 0;
            case "n > 4" -> value -> number(value) > 4;
            case "s = a" -> value -> "a".equals(letter(value));
            case "x < 2" -> value -> half(value) == null || half(value) < 2;
            default -> throw new IllegalArgumentException("no predicate " + name);
        };
    }

    static UnaryOperator<Object> mapper(String name) {
        return switch (name) {
            case "same" -> value -> plus(value, 0);
            case "more" -> value -> plus(value, 1);
            case "next s" -> value -> new Row(number(value), next(letter(value)), number(value) / 2.0);
            case "number" -> Values::number;
            case "some" -> value -> number(value) % 3 == 0 ? null : plus(value, 0);
            default -> throw new IllegalArgumentException("no mapper " + name);
        };
    }

    private static Row plus(Object value, long more) {
        return new Row(number(value) + more, letter(value), half(value));
    }

    private static String next(String letter) {
        List<String> ring = Arrays.asList(null, "a", "b", "c");
        return ring.get((ring.indexOf(letter) + 1) % ring.size());
    }

    static List<Object> copies(Object value) {
        return value == null ? List.of() : List.<Object>of(joined(value, null), joined(value, value)).subList(0, (int) (number(value) % 3));
    }

    static Row counted(Object value, long count) {
        return new Row(number(value) + count, letter(value), half(value));
    }

    // -- functions of two

    static Row joined(Object left, Object right) {
        return new Row(number(left) + number(right), letter(left) == null ? letter(right) : letter(left), half(left) == null ? half(right) : half(left));
    }

    static Object reduced(Object total, Object value) {
        if (value == null) {
            return total;
        }
        return total instanceof Long one ? (Object) (one + number(value)) : new Row(number(total) + number(value), letter(value), half(value));
    }

    static Row added(Row total, Object value) {
        return new Row(total.n + number(value), letter(value) == null ? total.s : letter(value), total.x + 1);
    }

    static Row merged(Row left, Row right) {
        return new Row(left.n + right.n, right.s == null ? left.s : right.s, left.x + right.x);
    }

    static Row put(Row total, Object value) {
        return new Row(total.n + number(value), null, total.x + 1);
    }

    static Row taken(Row total, Object value) {
        return total.x == 1 ? null : new Row(total.n - number(value), null, total.x - 1);
    }

    /** Numbers, or rows of one letter. */
    static Object plus(Object total, Object value) {
        return total instanceof Row row ? new Row(row.n + number(value), letter(value), row.x + 1) : (Object) (number(total) + number(value));
    }

    static Object minus(Object total, Object value) {
        if (total instanceof Row row) {
            return row.x == 1 ? null : new Row(row.n - number(value), letter(value), row.x - 1);
        }
        return number(total) == number(value) ? null : (Object) (number(total) - number(value));
    }

    /** Fails where the value is a multiple of 4. */
    static Object refusing(Object value, boolean fails) {
        if (fails && value != null && number(value) % 4 == 0) {
            throw new IllegalStateException("refused");
        }
        return value;
    }

    // -- as JSON, and as bytes

    static Object of(JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        return node.isObject() ? new Row(node.get("n").longValue(), node.get("s").textValue(), node.get("x").isNull() ? null : node.get("x").doubleValue())
            : (Object) node.longValue();
    }

    /** Of all values. */
    public static final class ValueSerde extends Bytewise {
        public ValueSerde() {
            super(value -> JSON.valueToTree(value).toString(), text -> {
                try {
                    return of(JSON.readTree(text));
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
        }
    }

    /** Of texts, and of windowed ones, which are `key@start-end`. */
    public static final class KeySerde extends Bytewise {
        public KeySerde() {
            super(Values::text, text -> {
                int at = text.indexOf('@');
                int to = text.indexOf('-', at);
                return at < 0 ? text : new Windowed<>((Object) text.substring(0, at),
                    new Span(Long.parseLong(text.substring(at + 1, to)), Long.parseLong(text.substring(to + 1))));
            });
        }
    }

    static String text(Object key) {
        return key instanceof Windowed<?> windowed ? windowed.key() + "@" + windowed.window().start() + "-" + windowed.window().end() : (String) key;
    }

    private static final class Span extends Window {
        Span(long start, long end) {
            super(start, end);
        }

        @Override public boolean overlap(Window other) {
            throw new UnsupportedOperationException();
        }
    }

    private abstract static class Bytewise implements Serde<Object> {
        private final Function<Object, String> write;
        private final Function<String, Object> read;

        Bytewise(Function<Object, String> write, Function<String, Object> read) {
            this.write = write;
            this.read = read;
        }

        @Override public Serializer<Object> serializer() {
            return (topic, value) -> value == null ? null : write.apply(value).getBytes(StandardCharsets.UTF_8);
        }

        @Override public Deserializer<Object> deserializer() {
            return (topic, bytes) -> bytes == null ? null : read.apply(new String(bytes, StandardCharsets.UTF_8));
        }
    }
}
