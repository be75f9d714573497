import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import software.amazon.event.ruler.Machine;

/**
 * Tests which changes of the table of records the template's filters deliver, with AWS's own matcher of event patterns:
 * {@code java -cp 'folder-of-jars/*' infra/filters/Filters.java infra/idempotency.yaml}.
 */
class Filters {
    /** Who reads the stream, by the names of their functions in the template. */
    static final String STALE = "StaleFunction";
    static final String OUTBOX = "OutboxFunction";

    /** A change, and which functions must see it. */
    record Change(Set<String> readers, String what, String sk, String before, String after) {
        /** The change as Lambda passes it to a filter, without {@code eventName}, which Lambda does not look at. */
        String json() {
            return """
                {"eventSource": "aws:dynamodb", "dynamodb": {"SequenceNumber": "1", "StreamViewType": "NEW_AND_OLD_IMAGES",
                 "Keys": {"pk": {"S": "acme#create-payment#k-1"}, "sk": {"S": "%s"}}%s%s}}
                """.formatted(sk, image("OldImage", before), image("NewImage", after));
        }

        /** No image if the state is {@code null}; an item without a state if it is empty. */
        private String image(String name, String state) {
            if (state == null) {
                return "";
            }
            var attribute = state.isEmpty() ? "" : ", \"state\": {\"S\": \"%s\"}".formatted(state);
            var created = "\"created_at\": {\"N\": \"1800000000000\"}";
            return ", \"%s\": {\"sk\": {\"S\": \"%s\"}, %s%s}".formatted(name, sk, created, attribute);
        }
    }

    static final List<Change> CHANGES = List.of(
        record("a reservation", null, "in_progress", STALE),
        record("accepted work", null, "pending", STALE, OUTBOX),
        record("accepted work under a key that is used anew after its time", "completed", "pending", STALE, OUTBOX),
        record("accepted work that a worker takes", "pending", "in_progress", STALE),
        record("accepted work that a worker did not do", "in_progress", "pending", STALE, OUTBOX),
        record("accepted work that is found out not to be done", "unknown", "pending", STALE, OUTBOX),
        record("abandoned work", "pending", "completed", STALE),
        record("a heartbeat", "in_progress", "in_progress", STALE),
        record("a take-over of released work", "failed_retryable", "in_progress", STALE),
        record("a key that is used anew after its time", "completed", "in_progress", STALE),
        record("a completion", "in_progress", "completed", STALE),
        record("a release", "in_progress", "failed_retryable", STALE),
        record("an outcome that becomes unknown", "in_progress", "unknown", STALE),
        record("an execution that ends between two phases", "in_progress", "between_workers", STALE, OUTBOX),
        record("a phase that is kept", "in_progress", "in_progress", STALE),
        record("a retry that resumes", "between_workers", "in_progress", STALE),
        record("a state of a later version", null, "paused", STALE),
        record("a record that comes into a state of a later version", "completed", "paused", STALE),
        record("an item without a state", null, "", STALE),
        record("a record that loses its state", "completed", "", STALE),
        record("a deletion by time to live", "completed", null, STALE),
        record("a deletion of what is in progress", "in_progress", null, STALE),

        record("a question about an unknown outcome", "unknown", "unknown"),
        record("an unknown outcome that was executed", "unknown", "completed"),
        record("an unknown outcome that was not executed", "unknown", "failed_retryable"),
        record("an unknown outcome that a retry may resume", "unknown", "between_workers", OUTBOX),
        record("a phase that is reported between workers", "between_workers", "between_workers", OUTBOX),
        record("what an operator settles between workers", "between_workers", "completed"),
        record("a release that the provider contradicts", "failed_retryable", "completed"),
        record("a response that is removed", "completed", "completed"),
        record("a single transaction", null, "completed"),

        item("a message that is published", "message#1800000000000#0000000000", null, "", OUTBOX),
        item("the removal of a message that was delivered", "message#1800000000000#0000000000", "", null),
        item("a body item", "body#1", null, ""),
        item("a body's deletion by time to live", "body#1", "", null),
        item("an audit line", "audit#1", null, ""),
        item("an audit line that has a state", "audit#1", null, "in_progress"),
        item("an audit line of accepted work", "audit#1", null, "pending"),
        item("the deletion of one", "audit#1", "in_progress", null));

    static Change record(String what, String before, String after, String... readers) {
        return item(what, "record", before, after, readers);
    }

    static Change item(String what, String sk, String before, String after, String... readers) {
        return new Change(Set.of(readers), what, sk, before, after);
    }

    /** The filters of each function, by its name: those that follow the line which begins the function. */
    static Map<String, List<String>> filters(String template) {
        var found = new TreeMap<String, List<String>>();
        var line = Pattern.compile("(?m)^  (\\w+):$|- Pattern: '(.*)'").matcher(template);
        for (String resource = ""; line.find(); ) {
            if (line.group(1) != null) {
                resource = line.group(1);
            } else {
                found.computeIfAbsent(resource, any -> new ArrayList<>()).add(line.group(2));
            }
        }
        return found;
    }

    /** Whether the filters of this function deliver the changes that it must see, and no others. */
    static boolean areRight(String function, List<String> filters) throws Exception {
        var machine = Machine.builder().build();
        for (var filter : filters) {
            machine.addRule(filter, filter);
        }
        Set<String> idle = new TreeSet<>(filters);
        var right = true;
        var delivered = 0;
        for (var change : CHANGES) {
            var matched = machine.rulesForJSONEvent(change.json());
            var needed = change.readers().contains(function);
            delivered += needed ? 1 : 0;
            if (matched.isEmpty() == needed) {
                right = false;
                System.err.println(function + (needed ? ": not delivered: " : ": delivered: ") + change.what());
            }
            if (matched.size() == 1) {
                idle.removeAll(matched);
            }
        }
        for (var filter : idle) {
            right = false;
            System.err.println(function + ": redundant, because other filters deliver the same changes: " + filter);
        }
        System.out.println("the filters of " + function + " deliver " + delivered + " kinds of changes of " + CHANGES.size());
        return right;
    }

    public static void main(String[] arguments) throws Exception {
        var filters = filters(Files.readString(Path.of(arguments[0])));
        // More than two readers of a shard are throttled.
        var right = filters.keySet().equals(Set.of(STALE, OUTBOX));
        for (var function : filters.entrySet()) {
            right &= areRight(function.getKey(), function.getValue());
        }
        if (!right) {
            System.err.println("the filters of " + arguments[0] + " are wrong: " + filters.keySet());
            System.exit(1);
        }
    }
}
