// Package feed carries a store's events to its subscribers: every event to each
// of them, in order, without a bound and without ever blocking the store.
package feed
