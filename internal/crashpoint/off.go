//go:build !crashpoints

// Package crashpoint marks the boundaries of the pipeline at which a test has
// the process killed: before and after a frame is received, a message decoded, a
// cycle produced, an answer noted, a position stored and one confirmed.
//
// It does so only in a binary built with the tag crashpoints, which tests build
// for themselves. In every other one Pass is empty and the compiler leaves
// nothing of its calls: no configuration can reach what is not there.
package crashpoint

// Pass is a boundary.
func Pass(string) {}
