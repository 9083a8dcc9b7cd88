package crossstream.peer;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * A join as a Kafka Streams application, for benchmarks.
 *
 * <p>Standard output is JSON lines: {"event": "state", "state": "RUNNING", "ms": …} at every change of state,
 * {"event": "error", …} when a thread dies, {"event": "stopped", "processed": …, "dropped": …} at the end. Ends on
 * SIGTERM, and with {@code --until stdin-ends} when its standard input does, so that it never outlives who started it.
 */
public final class Peer {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;

    private Peer() { }

    public static void main(String[] words) throws InterruptedException {
        Arguments arguments = Arguments.of(words);
        Properties settings = arguments.settings();
        KafkaStreams streams = new KafkaStreams(Joins.of(arguments).build(settings), settings);
        CountDownLatch over = new CountDownLatch(1);
        streams.setStateListener((now, before) -> tell("state", e -> e.put("state", now.name())));
        streams.setUncaughtExceptionHandler(failure -> {
            tell("error", e -> e.put("reason", String.valueOf(failure)));
            failure.printStackTrace();
            over.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(streams), "stop"));
        if (arguments.text("until", "signal").equals("stdin-ends")) {
            Thread watch = new Thread(Peer::exitWithInput, "watch-stdin");
            watch.setDaemon(true);
            watch.start();
        }
        streams.start();
        over.await(); // a signal ends the process through the hook; only an error gets past here
        System.exit(1);
    }

    private static void exitWithInput() {
        try {
            System.in.transferTo(OutputStream.nullOutputStream());
        } catch (IOException e) {
            e.printStackTrace();
        }
        System.exit(0);
    }

    private static void stop(KafkaStreams streams) {
        double dropped = total(streams, "stream-task-metrics", "dropped-records-total");
        double processed = total(streams, "stream-thread-metrics", "process-total");
        // Else the group waits until it has missed this member, and so does the next one.
        CloseOptions leaving =
            CloseOptions.timeout(PATIENCE).withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        boolean closed = streams.close(leaving);
        tell("stopped", e -> e.put("closed", closed).put("processed", processed).put("dropped", dropped));
    }

    /** The sum of a metric over tasks or threads. */
    private static double total(KafkaStreams streams, String group, String name) {
        return streams.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals(name) && metric.metricName().group().equals(group))
            .mapToDouble(metric -> ((Number) metric.metricValue()).doubleValue()).sum();
    }

    private interface Details {
        ObjectNode add(ObjectNode event);
    }

    private static synchronized void tell(String event, Details details) {
        ObjectNode line = JSON.createObjectNode().put("event", event).put("ms", System.currentTimeMillis());
        OUT.println(details.add(line));
        OUT.flush();
    }
}
