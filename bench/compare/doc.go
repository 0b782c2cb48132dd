// Package compare runs kbroker, Apache Kafka and the skeleton broker side by
// side under the same loads and makes a table of the ratios. Each broker has
// core 0 for itself while it is measured, the load has core 1; the others are
// stopped meanwhile. It starts and ends processes; the loads are the bench
// command's own.
package compare
