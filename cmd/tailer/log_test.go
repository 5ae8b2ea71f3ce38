package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func TestLogFormats(t *testing.T) {
	write := func(cfg LogConfig) string {
		var b strings.Builder
		log := newLogger(&b, cfg)
		log.Debug("below")
		log.Info("confirmed", "lsn", pglogrepl.LSN(0x1_0000_00FF), "after", 1500*time.Millisecond)
		return b.String()
	}
	// What is not a terminal gets JSON.
	for _, format := range []string{"auto", "json"} {
		text := write(LogConfig{"info", format})
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%s: %v in %s", format, err, text)
		}
		if line["msg"] != "confirmed" || line["lsn"] != "1/FF" || line["after"] != "1.5s" {
			t.Errorf("%s: %s", format, text)
		}
	}
	if text := write(LogConfig{"info", "text"}); !strings.Contains(text, "level=INFO msg=confirmed lsn=1/FF after=1.5s\n") {
		t.Errorf("text: %s", text)
	}
	if text := write(LogConfig{"debug", "text"}); !strings.Contains(text, "msg=below") {
		t.Errorf("debug: %s", text)
	}
	if text := write(LogConfig{"error", "text"}); text != "" {
		t.Errorf("error: %s", text)
	}
}
