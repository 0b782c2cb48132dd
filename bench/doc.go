// Command bench puts load on Kafka brokers and measures what they do with it:
// throughput with a client library and with frames encoded before, latency by
// the clock, and kbroker beside Apache Kafka and a bare skeleton. Its packages
// know brokers by their wire protocol only.
package main
