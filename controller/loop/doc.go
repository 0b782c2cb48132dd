// Package loop drives the pure controller on one broker: it contends for the
// election, turns watch events into facts, carries the plan's writes to the
// metadata store and its sends to the brokers. It owns one decision goroutine
// and, while elected, one ordered sender per broker; it never decides.
package loop
