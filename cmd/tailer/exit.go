package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tailer-relay/tailer/replication"
)

// The exit codes that scripts may rely on.
const (
	exitDone  = 0 // done, or drained
	exitRetry = 1 // a retry may help
	exitUsage = 2 // usage or configuration
	exitGap   = 3 // events may be missing, a person must decide
)

// exitError is an error that knows the process's exit code and what to type next.
type exitError struct {
	code int
	err  error
	hint string // "" when there is nothing to type
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(hint, format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// databaseError gives an error of the database the code and hint that its class asks for.
func databaseError(err error) error {
	if err == nil {
		return nil
	}
	if e := (*exitError)(nil); errors.As(err, &e) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return &exitError{code: exitRetry, err: fmt.Errorf("interrupted: %w", err)}
	}
	code := exitRetry
	switch replication.Classify(err) {
	case replication.Usage:
		code = exitUsage
	case replication.Gap:
		code = exitGap
	}
	return &exitError{code: code, err: err, hint: replication.HintOf(err)}
}

// report prints an error for people and returns the exit code. Every line of a
// configuration's errors is a line of its own; any other error is one line.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	code, hint, text := exitRetry, "", err.Error()
	if e := (*exitError)(nil); errors.As(err, &e) {
		code, hint = e.code, e.hint
	}
	lines := []string{strings.Join(strings.Fields(text), " ")}
	if e := (*ConfigError)(nil); errors.As(err, &e) {
		lines = e.Problems
	}
	for _, line := range lines {
		fmt.Fprintf(w, "tailer: %s\n", line)
	}
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return code
}
