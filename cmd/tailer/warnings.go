package main

import (
	"log/slog"
	"sync"

	"github.com/tailer-relay/tailer/replication"
)

// warnOnce logs a warning the first time it comes: every session looks anew,
// and a standby begins one twice a second.
func warnOnce(log *slog.Logger) func(replication.Warning) {
	var mu sync.Mutex
	said := make(map[replication.Warning]bool)
	return func(w replication.Warning) {
		mu.Lock()
		defer mu.Unlock()
		if !said[w] {
			said[w] = true
			log.Warn(w.Text, "hint", w.Hint)
		}
	}
}
