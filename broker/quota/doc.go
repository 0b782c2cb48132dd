// Package quota limits rates: it counts what was used in short windows and says
// when a limit is used up. It never delays anybody itself.
package quota
