package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

func (env *environment) healthCommand() *cli.Command {
	return &cli.Command{
		Name:      "health",
		Usage:     "ask the relay beside it whether it is ready (for container checks)",
		UsageText: "tailer health [--live] [--config FILE] [flags]\n\nExample:\n   tailer health --live --http-listen 0.0.0.0:9479",
		Description: "Asks /readyz, or /healthz with --live, at http.listen, prints the answer, and exits\n" +
			"with 0 when it is good, else with 1." + quietly,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "live", Usage: "ask /healthz: is a loop wedged?"},
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for an answer", Value: 3 * time.Second},
		}, quietFlags()...),
		Action: func(c *cli.Context) error {
			cfg, _, err := env.load(c, forHTTP)
			if err != nil {
				return err
			}
			path := "/readyz"
			if c.Bool("live") {
				path = "/healthz"
			}
			base, err := relayURL(cfg.HTTP.Listen)
			if err != nil {
				return err
			}
			code, body, err := ask(base+path, c.Duration("timeout"))
			if err != nil {
				return &exitError{code: exitRetry, err: fmt.Errorf("no relay answers at %s: %w", base, bare(err)),
					hint: "start it (tailer run), or say where it listens: --http-listen HOST:PORT, as it logged with \"http listening\""}
			}
			fmt.Fprintln(env.stdout, body)
			if code != http.StatusOK {
				return &exitError{code: exitRetry, err: fmt.Errorf("%s answers %d", base+path, code)}
			}
			return nil
		},
	}
}

// bare is a failed request without method and address, which are said already.
func bare(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	if e := (*net.OpError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return err
}

// relayURL is where a relay with this http.listen answers on the same machine.
func relayURL(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	switch {
	case listen == "":
		return "", usageError("set http.listen, or --http-listen HOST:PORT", "http.listen is off, so the relay cannot be asked")
	case err != nil:
		return "", usageError("", "http.listen: %q is not host:port", listen)
	case port == "0":
		return "", usageError("set http.listen to a fixed port, or give the one that the relay logged with --http-listen",
			"http.listen %s takes a free port, so the relay cannot be asked", listen)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// ask gets one short page. A proxy of the environment is none of its business.
func ask(address string, timeout time.Duration) (code int, body string, err error) {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Get(address)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, strings.TrimSpace(string(data)), nil
}
