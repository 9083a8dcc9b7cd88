package crossstream.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.kstream.JoinWindows;

/** One request: joins over input sides, and the records to feed, in processing order. */
record Case(List<Join> joins, List<Input> inputs, JsonNode params) {

    /** A join of two of: an input side ("left", "right", "third"), an earlier join's id. */
    record Join(String id, String operator, String type, String left, String right, JsonNode params, boolean materialized) {
        boolean by(String name) {
            return operator.equals(name);
        }
    }

    record Input(String side, Object key, Object value, long timestamp, Headers headers) { }

    static Case of(JsonNode request) {
        JsonNode params = request.path("params");
        List<Join> joins = new ArrayList<>();
        for (JsonNode join : request.path("joins")) {
            joins.add(new Join(join.get("id").textValue(), join.get("operator").textValue(), join.get("type").textValue(),
                join.get("left").textValue(), join.get("right").textValue(), merged(params, join), join.path("materialized").asBoolean()));
        }
        if (joins.isEmpty()) {
            String right = params.path("self_join").asBoolean() ? "left" : "right";
            joins.add(new Join("result", request.get("operator").textValue(), request.get("type").textValue(), "left", right, params, false));
        }
        List<Input> inputs = new ArrayList<>();
        for (JsonNode input : request.get("inputs")) {
            inputs.add(new Input(input.get("side").textValue(), scalar(input.get("key")), scalar(input.get("value")),
                input.get("ts").longValue(), headers(input.path("headers"))));
        }
        return new Case(joins, inputs, params);
    }

    /** The settings of one join of a chain: its own before those of the case. */
    private static JsonNode merged(JsonNode params, JsonNode join) {
        ObjectNode both = params.isObject() ? params.deepCopy() : JsonNodeFactory.instance.objectNode();
        return both.setAll((ObjectNode) join);
    }

    /** A JSON string, number or null as a Java one. */
    static Object scalar(JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        if (node.isTextual()) {
            return node.textValue();
        }
        if (!node.isNumber()) {
            throw new IllegalArgumentException("neither string, number nor null: " + node);
        }
        return node.isInt() ? (Object) node.intValue() : node.isIntegralNumber() ? (Object) node.longValue() : (Object) node.doubleValue();
    }

    private static Headers headers(JsonNode node) {
        RecordHeaders headers = new RecordHeaders();
        node.fields().forEachRemaining(e -> headers.add(e.getKey(), HexFormat.of().parseHex(e.getValue().textValue())));
        return headers;
    }

    Join last() {
        return joins.get(joins.size() - 1);
    }

    /** Milliseconds of a parameter of the whole case, or null where it is absent. */
    Duration duration(String name) {
        JsonNode node = params.path(name);
        return node.isNumber() ? Duration.ofMillis(node.longValue()) : null;
    }

    boolean flag(String name, boolean otherwise) {
        return params.path(name).asBoolean(otherwise);
    }

    boolean withHeaders() {
        return inputs.stream().anyMatch(input -> input.headers().iterator().hasNext());
    }

    /** The window of a stream-stream join. Bounds may be negative as long as their sum is not. */
    @SuppressWarnings("deprecation") // the eager mode is reachable by the deprecated constructor only
    JoinWindows windows(Join join) {
        JsonNode window = join.params().get("window");
        Duration before = Duration.ofMillis(window.get("before_ms").longValue());
        Duration after = Duration.ofMillis(window.get("after_ms").longValue());
        Duration grace = Duration.ofMillis(window.get("grace_ms").longValue());
        Duration widest = Duration.ofMillis(Math.max(Math.abs(before.toMillis()), Math.abs(after.toMillis())));
        boolean eager = join.params().path("eager").asBoolean();
        JoinWindows windows = eager ? JoinWindows.of(widest).grace(grace) : JoinWindows.ofTimeDifferenceAndGrace(widest, grace);
        return windows.before(before).after(after);
    }
}
