package crossstream.oracle;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/**
 * Reads one case a line from standard input, answers one line each, until the input ends. The first line out says
 * which Kafka it is. A case that cannot be built or run is answered {"error": reason}. Argument: an empty folder for state.
 */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Oracle() { }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not come between the answers
        answer(answers, Path.of(args[0]));
    }

    private static void answer(PrintStream answers, Path states) throws IOException {
        answers.println(JSON.createObjectNode().put("kafka", org.apache.kafka.common.utils.AppInfoParser.getVersion()));
        answers.flush();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        long number = 0;
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String id = "case-" + number++;
            answers.println(answer(line, states, id));
            answers.flush();
            delete(states.resolve(id));
        }
    }

    private static String answer(String line, Path states, String id) throws JsonProcessingException {
        try {
            JsonNode request = JSON.readTree(line);
            return JSON.writeValueAsString(switch (request.path("operator").asText()) {
                case "windowed" -> Windowing.run(request, states, id);
                case "grouped" -> Grouping.run(request, states, id);
                case "graph" -> Graphs.run(request, states, id);
                default -> Run.run(Case.of(request), states, id);
            });
        } catch (Exception | LinkageError e) {
            ObjectNode failure = JSON.createObjectNode().put("error", describe(e));
            return JSON.writeValueAsString(failure);
        }
    }

    private static String describe(Throwable e) {
        Throwable cause = e;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause == e ? e.toString() : e + " caused by " + cause;
    }

    private static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path file : (Iterable<Path>) files.sorted(Comparator.reverseOrder())::iterator) {
                Files.deleteIfExists(file);
            }
        }
    }
}
