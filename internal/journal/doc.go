// Package journal is a log that tests read while it is written: it counts lines by
// what they hold. It never formats or filters anything, and only tests import it.
package journal
