//go:build crashpoints

// Package crashpoint: see off.go.
package crashpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// chosen is the boundary that $TAILER_CRASHPOINT names, left how often it is still
// passed, this time included: "produce.after:3" is killed at the third time.
var (
	chosen string
	left   atomic.Int64
)

func init() {
	text := os.Getenv("TAILER_CRASHPOINT")
	if text == "" {
		return
	}
	name, number, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		fmt.Fprintf(os.Stderr, "TAILER_CRASHPOINT: %q is no name:n\n", text)
		os.Exit(2)
	}
	chosen = name
	left.Store(n)
}

// Pass kills the process when it is the one that was asked for.
func Pass(name string) {
	if name == chosen && left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing may happen after it
	}
}
