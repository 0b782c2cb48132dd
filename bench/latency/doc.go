// Package latency measures how long a record takes from its producer through
// the broker to its consumer. Records are due by a schedule that does not wait
// for the broker, so that a pause of the broker is charged to every record that
// was due in it. One thread does it all and never sleeps: it watches the clock
// and both sockets in turn, so what is measured is the broker and not how fast
// the system wakes a client.
package latency
