// Package broker puts one broker together: it opens what the packages below
// offer in the right order, hands them to each other, and stops them in the
// reverse order. It decides nothing about requests, logs or leaders.
package broker
