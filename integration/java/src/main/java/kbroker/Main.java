package kbroker;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs the cases against one broker and prints a line for each: "PASS name" or "FAIL name: why".
 *
 * <p>Usage: Main BOOTSTRAP PREFIX [CASE ...]; PREFIX starts the name of every topic.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Map<String, Check.Action> cases = new LinkedHashMap<>();
        new ClientCases(args[0], args[1]).addTo(cases);
        new AdminCases(args[0], args[1]).addTo(cases);
        boolean failed = false;
        for (Map.Entry<String, Check.Action> c : cases.entrySet()) {
            if (args.length > 2 && !java.util.Arrays.asList(args).subList(2, args.length).contains(c.getKey())) {
                continue;
            }
            try {
                c.getValue().run();
                System.out.println("PASS " + c.getKey());
            } catch (Throwable e) {
                failed = true;
                System.out.println("FAIL " + c.getKey() + ": " + e);
                e.printStackTrace();
            }
        }
        System.exit(failed ? 1 : 0);
    }
}
