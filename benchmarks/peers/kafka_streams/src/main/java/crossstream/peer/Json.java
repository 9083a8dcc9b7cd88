package crossstream.peer;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.Map;

/** Values stay bytes: what a join needs of them is read with Jackson's streaming parser, nothing is bound to objects. */
final class Json {
    private static final JsonFactory FACTORY = new JsonFactory();

    private Json() { }

    /** The text of a top-level field; null where it is absent or null. Reading ends as soon as it is found. */
    static String field(byte[] object, String name) {
        try (JsonParser parser = FACTORY.createParser(object)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                boolean found = parser.currentName().equals(name);
                JsonToken value = parser.nextToken();
                if (found) {
                    return value == JsonToken.VALUE_NULL ? null : parser.getText();
                }
                parser.skipChildren();
            }
            return null;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Whole numbers at the top level, in the order of the names. Reading ends when all are found. */
    static long[] numbers(byte[] object, String... names) {
        long[] found = new long[names.length];
        try (JsonParser parser = FACTORY.createParser(object)) {
            parser.nextToken();
            for (int missing = names.length; missing > 0 && parser.nextToken() == JsonToken.FIELD_NAME; ) {
                String name = parser.currentName();
                parser.nextToken();
                for (int i = 0; i < names.length; i++) {
                    if (names[i].equals(name)) {
                        found[i] = parser.getLongValue();
                        missing--;
                    }
                }
                parser.skipChildren();
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return found;
    }

    /** Fields and the names they get: `field` or `field=name`. */
    static Map<String, String> names(String... words) {
        Map<String, String> names = new LinkedHashMap<>();
        for (String word : words) {
            String[] pair = word.split("=", 2);
            names.put(pair[0], pair[pair.length - 1]);
        }
        return names;
    }

    /** Fields of both rows, under the names they get; other fields are left out. */
    static byte[] joined(byte[] left, Map<String, String> ofLeft, byte[] right, Map<String, String> ofRight) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(192);
        try (JsonGenerator out = FACTORY.createGenerator(bytes)) {
            out.writeStartObject();
            copy(left, out, ofLeft);
            copy(right, out, ofRight);
            out.writeEndObject();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }

    private static void copy(byte[] object, JsonGenerator out, Map<String, String> names) throws IOException {
        try (JsonParser parser = FACTORY.createParser(object)) {
            parser.nextToken();
            for (int missing = names.size(); missing > 0 && parser.nextToken() == JsonToken.FIELD_NAME; ) {
                String as = names.get(parser.currentName());
                parser.nextToken();
                if (as == null) {
                    parser.skipChildren();
                } else {
                    out.writeFieldName(as);
                    out.copyCurrentStructure(parser);
                    missing--;
                }
            }
        }
    }

    /** {"item": left's, "amount": left's, "customer": right's name, "city": right's}; nulls for a missing side. */
    static byte[] joined(byte[] left, byte[] right) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(128);
        try (JsonGenerator out = FACTORY.createGenerator(bytes)) {
            out.writeStartObject();
            copy(left, out, "item", "item", "amount", "amount");
            copy(right, out, "name", "customer", "city", "city");
            out.writeEndObject();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }

    /** Two fields of an object, under new names, in the order in which they stand there. */
    private static void copy(byte[] object, JsonGenerator out, String first, String firstAs, String second, String secondAs)
        throws IOException {
        if (object == null) {
            out.writeNullField(firstAs);
            out.writeNullField(secondAs);
            return;
        }
        try (JsonParser parser = FACTORY.createParser(object)) {
            parser.nextToken();
            for (int missing = 2; missing > 0 && parser.nextToken() == JsonToken.FIELD_NAME; ) {
                String name = parser.currentName();
                String as = name.equals(first) ? firstAs : name.equals(second) ? secondAs : null;
                parser.nextToken();
                if (as == null) {
                    parser.skipChildren();
                } else {
                    out.writeFieldName(as);
                    out.copyCurrentStructure(parser);
                    missing--;
                }
            }
        }
    }
}
