package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveHTTP answers /healthz, /readyz and /metrics on listen until stop is
// called. It returns the address it got ("" when listen is "": off). The one
// goroutine it starts has ended when stop returns.
func serveHTTP(ctx context.Context, listen string, h *health, m *metrics, log *slog.Logger) (addr string, stop func(context.Context), err error) {
	if listen == "" {
		return "", func(context.Context) {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return "", nil, &exitError{code: exitUsage, err: fmt.Errorf("listen on http.listen %s: %w", listen, err),
			hint: "choose a free address with http.listen (--http-listen), or turn it off with an empty one"}
	}
	server := &http.Server{
		Handler:           newHandler(h, m),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("http stopped", "addr", l.Addr().String(), "err", err)
		}
	}()
	log.Info("http listening", "addr", l.Addr().String())
	return l.Addr().String(), func(ctx context.Context) {
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-served
	}, nil
}

func newHandler(h *health, m *metrics) http.Handler {
	answer := func(w http.ResponseWriter, ok bool, body string) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		wedged := h.wedged()
		if wedged == "" {
			answer(w, true, "ok")
			return
		}
		answer(w, false, wedged)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, body := h.ready()
		answer(w, ready, body)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 20 * time.Second}))
	return mux
}
