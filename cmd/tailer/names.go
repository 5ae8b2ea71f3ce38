package main

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// parseName splits a dotted name as the configuration writes it: as in the
// catalogue, without case folding; a part with a dot or a quote stands in
// double quotes, a quote in it doubled.
func parseName(text string) ([]string, error) {
	var parts []string
	rest := text
	for {
		var part string
		if strings.HasPrefix(rest, `"`) {
			var ok bool
			if part, rest, ok = unquote(rest); !ok {
				return nil, fmt.Errorf("%q has an unpaired double quote", text)
			}
			if rest != "" && rest[0] != '.' {
				return nil, fmt.Errorf("%q has text behind a closing quote", text)
			}
		} else {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				i = len(rest)
			}
			part, rest = rest[:i], rest[i:]
			if strings.Contains(part, `"`) {
				return nil, fmt.Errorf("%q: a part that has a quote must be in double quotes, the quote doubled", text)
			}
		}
		if err := checkName(part); err != nil {
			return nil, err
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, nil
		}
		rest = rest[1:]
	}
}

// unquote reads a double-quoted part from the front.
func unquote(text string) (part, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			b.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '"' {
			b.WriteByte('"')
			i++
			continue
		}
		return b.String(), text[i+1:], true
	}
	return "", "", false
}

// checkName refuses what Postgres would cut off or could not hold: a cut name
// is another name for everyone who compares it.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case len(name) > 63:
		return fmt.Errorf("%q has %d bytes, Postgres keeps 63", name, len(name))
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%q has a zero byte", name)
	}
	return nil
}

// quoteIdent writes a name into SQL.
func quoteIdent(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// quoteText writes a text into SQL, whatever standard_conforming_strings says.
func quoteText(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
