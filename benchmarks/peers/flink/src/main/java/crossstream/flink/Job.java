package crossstream.flink;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutionException;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Statements of Flink SQL as one job, in a cluster inside this JVM: {@code Job SCRIPT name=value…}.
 *
 * <p>The script has its statements between lines of a semicolon. All INSERTs are one job; what stands before them is
 * executed at once. The plan goes to standard error. Standard output is JSON lines: {"event": "state", "state": "RUNNING"}, {"event":
 * "error", "reason": …} when the job fails, {"event": "stopped"}. Ends when its standard input does.
 */
public final class Job {
    private Job() { }

    public static void main(String[] words) throws Exception {
        Configuration settings = new Configuration();
        for (int i = 1; i < words.length; i++) {
            String[] setting = words[i].split("=", 2);
            settings.setString(setting[0], setting[1]);
        }
        JobClient job = submit(Files.readString(Path.of(words[0])), settings);
        while (job.getJobStatus().get() != JobStatus.RUNNING) {
            Thread.sleep(20);
        }
        tell("state", "state", "RUNNING");
        Thread watch = new Thread(Job::endWithInput, "watch-stdin");
        watch.setDaemon(true);
        watch.start();
        try {
            job.getJobExecutionResult().get();
        } catch (ExecutionException e) {
            e.printStackTrace();
            tell("error", "reason", String.valueOf(e.getCause()));
            System.exit(1);
        }
    }

    private static JobClient submit(String script, Configuration settings) {
        StreamExecutionEnvironment cluster = StreamExecutionEnvironment.createLocalEnvironment(settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(cluster);
        StatementSet inserts = tables.createStatementSet();
        for (String statement : script.split("\n;\n")) {
            if (statement.stripLeading().startsWith("INSERT")) {
                inserts.addInsertSql(statement);
            } else {
                tables.executeSql(statement);
            }
        }
        System.err.println(inserts.explain());
        return inserts.execute().getJobClient().orElseThrow();
    }

    private static void endWithInput() {
        try {
            System.in.transferTo(OutputStream.nullOutputStream());
        } catch (IOException e) {
            e.printStackTrace();
        }
        tell("stopped", "state", "STOPPED");
        Runtime.getRuntime().halt(0); // nothing of the job is kept
    }

    private static void tell(String event, String name, String value) {
        String told = value.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
        String line = "{\"event\": \"" + event + "\", \"" + name + "\": \"" + told + "\"}\n";
        System.out.write(line.getBytes(StandardCharsets.UTF_8), 0, line.getBytes(StandardCharsets.UTF_8).length);
        System.out.flush();
    }
}
