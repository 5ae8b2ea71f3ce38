package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// newLogger logs to w: coloured for eyes on a terminal, JSON for machines, text
// (key=value) on request.
func newLogger(w io.Writer, cfg LogConfig) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // not reached: the level is one of the table's
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	switch {
	case cfg.Format == "text":
		return slog.New(slog.NewTextHandler(w, options))
	case cfg.Format == "json" || !isTerminal(w):
		return slog.New(slog.NewJSONHandler(w, options))
	}
	_, noColor := os.LookupEnv("NO_COLOR")
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: time.TimeOnly, NoColor: noColor, ReplaceAttr: readable,
	}))
}

// readable writes positions and durations as people and Postgres do: the JSON
// handler would print bare integers. A hint that there is none is left out.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if a.Key == "hint" && a.Value.String() == "" {
			return slog.Attr{}
		}
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindAny:
		if lsn, ok := a.Value.Any().(pglogrepl.LSN); ok {
			a.Value = slog.StringValue(lsn.String())
		}
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
