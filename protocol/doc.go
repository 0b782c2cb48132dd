// Package protocol is Kafka's wire protocol as values: framing, request and
// response headers, the table of APIs and versions, the bounds check that runs
// before a request is decoded, error codes. It turns bytes into kmsg values and
// back; it never reads a socket, knows a log or decides an answer.
package protocol
