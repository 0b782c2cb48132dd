package kbroker;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs the cases against one broker and prints a line for each: "PASS name" or "FAIL name: why".
 *
 * <p>Usage: Main BOOTSTRAP PREFIX [CASE ...]; PREFIX starts the name of every topic; "some-*" names all cases that begin
 * so. Cases "given-..." read what the caller has put there, and those of groups want brokers that are set up for them:
 * both run only when they are named. The last argument of those in a cluster is a directory.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Map<String, Check.Action> cases = new LinkedHashMap<>();
        new ClientCases(args[0], args[1]).addTo(cases);
        new AdminCases(args[0], args[1]).addTo(cases);
        new GroupCases(args[0], args[1], true).addTo(cases);
        new GroupCases(args[0], args[1], false).addTo(cases);
        new ClusterCases(args[0], args[1], Path.of(args[args.length - 1])).addTo(cases);
        new GroupLoad(args[0], args[1], Path.of(args[args.length - 1])).addTo(cases);
        boolean failed = false;
        for (Map.Entry<String, Check.Action> c : cases.entrySet()) {
            boolean named = Arrays.stream(args).skip(2).anyMatch(a -> a.endsWith("*") ? c.getKey().startsWith(a.substring(0, a.length() - 1)) : a.equals(c.getKey()));
            if (args.length > 2 ? !named : c.getKey().startsWith("given-") || c.getKey().startsWith("group-")) {
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
