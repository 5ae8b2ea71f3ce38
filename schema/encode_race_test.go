//go:build race

package schema

// The race detector makes sync.Pool drop values at random, so allocations are
// not counted under it.
const raceEnabled = true
