// Package raw is load made of frames that were encoded before: Produce and
// Fetch requests that are written to plain connections, several in flight on
// each, and answers that are looked at no more than needed to know that they
// are good. It saturates the broker where a client library would be what is
// saturated. It also reads everything back and checks it. It sends to one
// broker.
package raw
