// Command clean measures the log cleaner of a broker on this machine, kbroker or
// Apache Kafka: it fills a compacted topic, lets the cleaner at it, and counts the
// processor time until the cleaner's checkpoint says that it is done.
//
//	go run ./bench/clean --bootstrap 127.0.0.1:9092 --pid PID --dir LOG_DIR
//
// The broker should have nothing else to do and log.cleaner.backoff.ms=100. The
// first round warms a JVM up; go by the later ones. Bytes are those of the
// segments that are cleaned.
package main
