// Package archtest holds the test that keeps the house in the shape that
// ARCHITECTURE.md draws: who may import whom, which packages stay pure, that
// each says in doc.go what it is, and that no file outgrows a reader.
package archtest
