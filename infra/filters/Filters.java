import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import software.amazon.event.ruler.Machine;

/**
 * Tests which changes of the table of records the template's filters deliver, with AWS's own matcher of event patterns:
 * {@code java -cp 'folder-of-jars/*' infra/filters/Filters.java infra/idempotency.yaml}.
 */
class Filters {
    /** A change, and whether the stale function must see it. */
    record Change(boolean delivered, String what, String sk, String before, String after) {
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
        record(true, "a reservation", null, "in_progress"),
        record(true, "accepted work", null, "pending"),
        record(true, "accepted work that a worker takes", "pending", "in_progress"),
        record(true, "a heartbeat", "in_progress", "in_progress"),
        record(true, "a take-over of released work", "failed_retryable", "in_progress"),
        record(true, "a key that is used anew after its time", "completed", "in_progress"),
        record(true, "a completion", "in_progress", "completed"),
        record(true, "a release", "in_progress", "failed_retryable"),
        record(true, "an outcome that becomes unknown", "in_progress", "unknown"),
        record(true, "an execution that ends between two phases", "in_progress", "between_workers"),
        record(true, "a phase that is kept", "in_progress", "in_progress"),
        record(true, "a retry that resumes", "between_workers", "in_progress"),
        record(true, "abandoned work", "pending", "completed"),
        record(true, "a state of a later version", null, "paused"),
        record(true, "a record that comes into a state of a later version", "completed", "paused"),
        record(true, "an item without a state", null, ""),
        record(true, "a record that loses its state", "completed", ""),
        record(true, "a deletion by time to live", "completed", null),
        record(true, "a deletion of what is in progress", "in_progress", null),

        record(false, "a question about an unknown outcome", "unknown", "unknown"),
        record(false, "an unknown outcome that was executed", "unknown", "completed"),
        record(false, "an unknown outcome that was not executed", "unknown", "failed_retryable"),
        record(false, "an unknown outcome that a retry may resume", "unknown", "between_workers"),
        record(false, "a phase that is reported between workers", "between_workers", "between_workers"),
        record(false, "what an operator settles between workers", "between_workers", "completed"),
        record(false, "a release that the provider contradicts", "failed_retryable", "completed"),
        record(false, "a response that is removed", "completed", "completed"),
        record(false, "a single transaction", null, "completed"),
        new Change(false, "a body item", "body#1", null, ""),
        new Change(false, "a body's deletion by time to live", "body#1", "", null),
        new Change(false, "an audit line", "audit#1", null, ""),
        new Change(false, "an audit line that has a state", "audit#1", null, "in_progress"),
        new Change(false, "the deletion of one", "audit#1", "in_progress", null));

    static Change record(boolean delivered, String what, String before, String after) {
        return new Change(delivered, what, "record", before, after);
    }

    public static void main(String[] arguments) throws Exception {
        var found = Pattern.compile("- Pattern: '(.*)'").matcher(Files.readString(Path.of(arguments[0])));
        var machine = Machine.builder().build();
        Set<String> idle = new TreeSet<>();
        while (found.find()) {
            idle.add(found.group(1));
            machine.addRule(found.group(1), found.group(1));
        }
        var failed = idle.isEmpty();
        for (var change : CHANGES) {
            var matched = machine.rulesForJSONEvent(change.json());
            if (matched.isEmpty() == change.delivered()) {
                failed = true;
                System.err.println((change.delivered() ? "not delivered: " : "delivered: ") + change.what());
            }
            if (matched.size() == 1) {
                idle.removeAll(matched);
            }
        }
        for (var filter : idle) {
            failed = true;
            System.err.println("redundant, because other filters deliver the same changes: " + filter);
        }
        if (failed) {
            System.err.println("the filters of " + arguments[0] + " are wrong");
            System.exit(1);
        }
        System.out.println("the filters deliver " + CHANGES.stream().filter(Change::delivered).count()
            + " kinds of changes and leave out " + CHANGES.stream().filter(change -> !change.delivered()).count());
    }
}
