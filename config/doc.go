// Package config is the one table of every broker and topic key: Kafka 3.9's
// name, type, default, validator, dynamic scope and meaning, and the typed,
// validated, immutable values made of a server.properties, of dynamic broker
// configs and of topic overrides.
//
// It owns the key names (each spelled once, in the table), the syntax of
// values, and what DescribeConfigs says of them. It never reads a file, a
// clock or the network: callers hand in readers and raw values.
package config
