package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.function.BiFunction;
import java.util.regex.Pattern;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;

/** The user functions of a case: joiners, foreign-key extractors, key mappers. */
final class Functions {
    private Functions() { }

    /**
     * {"template": "{left}-{right}"} with optional "missing", the text of a missing side (default "null"), and
     * "null_if": the result is null where the text contains it; or {"op": "sum"}; or {"op": "key-sum"}.
     */
    static ValueJoinerWithKey<Object, Object, Object, Object> joiner(JsonNode spec) {
        if (spec.has("template")) {
            String template = spec.get("template").textValue();
            String missing = spec.path("missing").asText("null");
            String nullIf = spec.path("null_if").textValue();
            return (key, left, right) -> {
                String text = fill(template, left == null ? missing : left, right == null ? missing : right);
                return nullIf != null && text.contains(nullIf) ? null : text;
            };
        }
        return switch (spec.path("op").asText()) {
            case "sum" -> (key, left, right) -> sum(left, right);
            case "key-sum" -> (key, left, right) -> key + ":" + sum(left, right);
            default -> throw new IllegalArgumentException("unknown joiner " + spec);
        };
    }

    /** What a joiner's results are written with. */
    static ScalarSerde joined(JsonNode spec, ScalarSerde left, ScalarSerde right) {
        if (!spec.path("op").asText().equals("sum")) {
            return ScalarSerde.STRING;
        }
        // A side without any value passes for strings, which cannot be added.
        return left == ScalarSerde.STRING ? right : right == ScalarSerde.STRING ? left : ScalarSerde.widest(left, right);
    }

    private static String fill(String template, Object left, Object right) {
        StringBuilder text = new StringBuilder();
        int from = 0;
        for (int at = template.indexOf('{'); at >= 0; at = template.indexOf('{', from)) {
            text.append(template, from, at);
            if (template.startsWith("{left}", at)) {
                text.append(left);
                from = at + 6;
            } else if (template.startsWith("{right}", at)) {
                text.append(right);
                from = at + 7;
            } else {
                text.append('{');
                from = at + 1;
            }
        }
        return text.append(template, from, template.length()).toString();
    }

    /** A missing side counts as 0. */
    private static Object sum(Object left, Object right) {
        Number a = left == null ? 0 : (Number) left;
        Number b = right == null ? 0 : (Number) right;
        if (a instanceof Double || b instanceof Double) {
            return a.doubleValue() + b.doubleValue();
        }
        long total = a.longValue() + b.longValue();
        return a instanceof Integer && b instanceof Integer ? (Object) Math.toIntExact(total) : (Object) total;
    }

    /** (key, value) to a foreign key or a lookup key; null where the specification has none. A null value gives null, but for "key". */
    static BiFunction<Object, Object, Object> extractor(JsonNode spec) {
        switch (spec.path("kind").asText()) {
            case "constant-null":
                return (key, value) -> null;
            case "key":
                return (key, value) -> key;
            case "value":
                String nullPrefix = spec.path("null_prefix").textValue();
                return (key, value) -> nullPrefix != null && value instanceof String text && text.startsWith(nullPrefix) ? null : value;
            case "split":
                return split(spec);
            case "truncate-to-int-string":
                return (key, value) -> value == null ? null : Long.toString((long) number(value));
            case "contains":
                String needle = spec.get("needle").textValue();
                Object then = Case.scalar(spec.get("then"));
                Object otherwise = Case.scalar(spec.get("else"));
                return (key, value) -> value == null ? null : value.toString().contains(needle) ? then : otherwise;
            default:
                throw new IllegalArgumentException("unknown extractor or mapper " + spec);
        }
    }

    private static double number(Object value) {
        return value instanceof Number n ? n.doubleValue() : Double.parseDouble(value.toString());
    }

    private static BiFunction<Object, Object, Object> split(JsonNode spec) {
        Pattern separator = Pattern.compile(Pattern.quote(spec.get("sep").textValue()));
        int index = spec.get("index").intValue();
        String nullIf = spec.path("null_if").textValue();
        boolean asInt = spec.path("as").asText().equals("int");
        return (key, value) -> {
            if (value == null) {
                return null;
            }
            String[] parts = separator.split(value.toString(), -1);
            if (index >= parts.length) {
                if (!spec.has("missing")) {
                    throw new IllegalArgumentException("no part " + index + " in value " + value);
                }
                return Case.scalar(spec.get("missing"));
            }
            String part = parts[index];
            return part.equals(nullIf) ? null : asInt ? (Object) Integer.valueOf(part) : part;
        };
    }

    /** What an extractor's keys are written with, as far as its specification tells. */
    static ScalarSerde extracted(JsonNode spec, ScalarSerde key, ScalarSerde value) {
        return switch (spec.path("kind").asText()) {
            case "key" -> key;
            case "value" -> value;
            default -> spec.path("as").asText().equals("int") ? ScalarSerde.INT : ScalarSerde.STRING;
        };
    }
}
