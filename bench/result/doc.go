// Package result is what one measured run has found: counts over a window of
// time and the CPU time they cost, in a form for people and one for programs.
// It measures nothing but processes' CPU time and memory, which it reads from
// /proc.
package result
