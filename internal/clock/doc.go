// Package clock is where drivers take the time from, so that tests can run on
// a virtual one. Pure packages take a `now` argument instead.
package clock
