// Package console shows a broker to people and to their tools over HTTP: whether
// it is alive and ready, its metrics in Prometheus' format, and its partitions.
// It reads through small views and changes nothing.
package console
