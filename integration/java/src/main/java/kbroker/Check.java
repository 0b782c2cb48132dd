package kbroker;

import java.util.Objects;
import java.util.concurrent.ExecutionException;

/** Assertions of the cases. */
final class Check {
    private Check() {}

    interface Action {
        void run() throws Exception;
    }

    static void equal(String what, Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    static void isTrue(String what, boolean ok) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    /** The action must fail with that exception, or with it as the cause. */
    static void fails(String what, Class<? extends Throwable> want, Action action) throws Exception {
        try {
            action.run();
        } catch (ExecutionException e) {
            equal(what, e.getCause().getClass().getSimpleName(), want.getSimpleName());
            return;
        } catch (Exception e) {
            equal(what, e.getClass().getSimpleName(), want.getSimpleName());
            return;
        }
        throw new AssertionError(what + ": nothing was thrown, want " + want.getSimpleName());
    }

    /** Repeats until the check holds, for what goes through the metadata store. */
    static void eventually(Action check) throws Exception {
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (true) {
            try {
                check.run();
                return;
            } catch (AssertionError | ExecutionException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
                Thread.sleep(50);
            }
        }
    }
}
