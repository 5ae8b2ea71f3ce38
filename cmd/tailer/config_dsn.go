package main

import (
	"errors"
	"io/fs"
	"strings"
)

// dsnReason gives the parser's reason, as much of it as has no piece of the
// password: a connection string that cannot be parsed is quoted in unexpected places.
func dsnReason(dsn string, err error) string {
	// A file that cannot be read: the string itself was understood.
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return ": " + file.Error()
	}
	secrets := dsnSecrets(dsn)
	// The outermost error quotes the whole string.
	for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
		if !leaks(err.Error(), secrets) {
			return ": " + err.Error()
		}
	}
	return ""
}

// leaks tells whether three letters in a row of a secret are in the text.
func leaks(text string, secrets []string) bool {
	for _, secret := range secrets {
		for i := 0; i == 0 || i+3 <= len(secret); i++ {
			if piece := secret[i:min(i+3, len(secret))]; piece != "" && strings.Contains(text, piece) {
				return true
			}
		}
	}
	return false
}

// dsnSecrets returns, generously, what could be a password in a string that
// may not parse.
func dsnSecrets(dsn string) []string {
	var out []string
	if i := strings.Index(dsn, "://"); i >= 0 {
		rest := dsn[i+3:]
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			if _, password, ok := strings.Cut(rest[:at], ":"); ok {
				out = append(out, password)
			}
		}
	}
	if _, password, ok := strings.Cut(dsn, "password"); ok {
		out = append(out, strings.TrimLeft(password, " ='"))
	}
	return out
}
