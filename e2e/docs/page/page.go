// Package page gives the tests of the documentation its pages as what a reader
// types: the fenced blocks, in their order.
package page

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Root is the top of the repository.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("the source of this package is not known")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Page is a document as its sections of blocks, which a test takes one after
// the other. A test ends with none left.
type Page struct {
	t      testing.TB
	name   string
	text   string
	blocks []block
}

type block struct{ language, text string }

var fenced = regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```")

// Open reads a page, or with a heading that section of it.
func Open(t testing.TB, name, heading string) *Page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, name: name, text: string(text)}
	if heading != "" {
		level := heading[:strings.IndexByte(heading, ' ')+1]
		_, section, found := strings.Cut(p.text, "\n"+heading+"\n")
		if !found {
			t.Fatalf("%s has no section %q", name, heading)
		}
		p.text, _, _ = strings.Cut(section, "\n"+level)
	}
	for _, m := range fenced.FindAllStringSubmatch(p.text, -1) {
		p.blocks = append(p.blocks, block{m[1], m[2]})
	}
	return p
}

// Next is the page's next block, which must be of that language.
func (p *Page) Next(language string) string {
	p.t.Helper()
	if len(p.blocks) == 0 {
		p.t.Fatalf("%s has no further block, one of %s was expected", p.name, language)
	}
	b := p.blocks[0]
	p.blocks = p.blocks[1:]
	if b.language != language {
		p.t.Fatalf("%s: a block of %s was expected next, not\n%s", p.name, language, b.text)
	}
	return b.text
}

// End fails when a block was left out.
func (p *Page) End() {
	p.t.Helper()
	if len(p.blocks) > 0 {
		p.t.Errorf("%s: no step of the test has run\n%s", p.name, p.blocks[0].text)
	}
}

// Says fails when the page no longer claims what the test has just seen.
func (p *Page) Says(claims ...string) {
	p.t.Helper()
	for _, claim := range claims {
		if !strings.Contains(strings.Join(strings.Fields(p.text), " "), claim) {
			p.t.Errorf("%s no longer says %q", p.name, claim)
		}
	}
}
