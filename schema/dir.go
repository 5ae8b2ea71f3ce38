package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A schema folder: one .avsc file a type, named after it, in folders as deep
// as one likes. A file may refer to named types that other files define, in
// any order; a file that only defines such types needs no other mark. Names
// that begin with a dot are passed over, which is also what makes a mounted
// Kubernetes ConfigMap (links into a hidden folder) read once.
//
// The folder is read and compiled whole, once; a change needs a restart.

const schemaSuffix = ".avsc"

// schemaFile is one file and what the others lend it.
type schemaFile struct {
	path    string // below the folder, with slashes
	typ     string // the event type it is the schema of
	text    []byte
	defined []string
	// needs are the files this one refers to directly, in the order of the
	// names in its text.
	needs []need
	// closure is every file it refers to, directly or not, each after those it
	// refers to itself.
	closure []*schemaFile
	encoder *Encoder
	broken  bool // an error of it is reported already
}

// need is one reference: a full name and the file that defines it.
type need struct {
	name string
	file *schemaFile
}

// record is the full name of the file's own schema, "" where it has none.
func (f *schemaFile) record() string {
	var top struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	if json.Unmarshal(f.text, &top) != nil || top.Name == "" {
		return ""
	}
	if top.Namespace == "" || strings.Contains(top.Name, ".") {
		return top.Name
	}
	return top.Namespace + "." + top.Name
}

// loadDir reads the folder and compiles every file. The error joins all that
// is wrong with it, one line each, with file and field.
func loadDir(cfg Config) (map[string]*schemaFile, error) {
	files, err := readDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, f := range files {
		f.defined, _, err = References(f.text)
		if err != nil {
			f.fail(&errs, "%w", err)
		}
	}
	connect(cfg.Dir, files, &errs)
	for _, f := range files {
		f.close(nil, &errs)
	}
	for _, f := range files {
		f.compile(Options{DropUnknown: cfg.DropUnknown, Dropped: cfg.Dropped}, &errs)
	}
	types := nameTypes(cfg, files, &errs)
	return types, errors.Join(errs...)
}

func (f *schemaFile) fail(errs *[]error, format string, a ...any) {
	f.broken = true
	*errs = append(*errs, fmt.Errorf("%s: "+format, append([]any{f.path}, a...)...))
}

// readDir returns the folder's schema files in the order of their paths.
func readDir(dir string) ([]*schemaFile, error) {
	root, err := filepath.EvalSymlinks(dir) // WalkDir does not enter a root that is a link
	if err != nil {
		return nil, fmt.Errorf("read schema.dir: %w", err)
	}
	var files []*schemaFile
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() || !strings.HasSuffix(d.Name(), schemaSuffix) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files = append(files, &schemaFile{path: filepath.ToSlash(rel), text: text})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read schema.dir %s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("schema.dir %s has no %s file; put one <type>%s in it for each event type", dir, schemaSuffix, schemaSuffix)
	}
	return files, nil
}

// connect finds the file behind every name that another file refers to.
func connect(dir string, files []*schemaFile, errs *[]error) {
	definers := map[string][]*schemaFile{}
	for _, f := range files {
		for _, name := range f.defined {
			definers[name] = append(definers[name], f)
		}
	}
	for _, f := range files {
		if f.broken {
			continue
		}
		_, referenced, _ := References(f.text)
		for _, name := range referenced {
			switch found := definers[name]; len(found) {
			case 0:
				f.fail(errs, "it refers to %s, which no file in %s defines", name, dir)
			case 1:
				f.needs = append(f.needs, need{name, found[0]})
			default:
				paths := make([]string, len(found))
				for i, g := range found {
					paths[i] = g.path
				}
				f.fail(errs, "it refers to %s, which is defined in %s; keep one", name, strings.Join(paths, " and "))
			}
		}
	}
}

// close computes the closure depth first; way is how the walk came here. Files
// whose references lead back to themselves cannot be compiled in any order.
func (f *schemaFile) close(way []*schemaFile, errs *[]error) {
	if f.closure != nil {
		return
	}
	if at := slices.Index(way, f); at >= 0 {
		ring := way[at:]
		if slices.ContainsFunc(ring, func(g *schemaFile) bool { return g.broken }) {
			return
		}
		var b strings.Builder
		for _, g := range ring {
			b.WriteString(g.path + " -> ")
		}
		f.fail(errs, "its references run in a circle: %s%s; move what they share into one file", b.String(), f.path)
		for _, g := range ring {
			g.broken = true
		}
		return
	}
	closure := []*schemaFile{} // not nil: done
	for _, n := range f.needs {
		n.file.close(append(way, f), errs)
		for _, g := range append(slices.Clone(n.file.closure), n.file) {
			if !slices.Contains(closure, g) {
				closure = append(closure, g)
			}
		}
	}
	f.closure = closure
}

// compile compiles f, unless it or what it needs is in error already.
func (f *schemaFile) compile(o Options, errs *[]error) {
	if f.broken || slices.ContainsFunc(f.closure, func(g *schemaFile) bool { return g.broken }) {
		return
	}
	refs := make([][]byte, len(f.closure))
	for i, g := range f.closure {
		refs[i] = g.text
	}
	enc, err := CompileOptions(f.text, o, refs...)
	if err != nil {
		f.fail(errs, "%w", err)
		return
	}
	f.encoder = enc
}

// nameTypes gives every file its type: the one that schema.types says, else
// the one in its name. A type has one file and a file one type; with a
// registry also one subject.
func nameTypes(cfg Config, files []*schemaFile, errs *[]error) map[string]*schemaFile {
	add := func(format string, a ...any) { *errs = append(*errs, fmt.Errorf(format, a...)) }
	byPath := make(map[string]*schemaFile, len(files))
	for _, f := range files {
		byPath[f.path] = f
	}
	types := map[string]*schemaFile{}
	claimed := map[*schemaFile]bool{}
	for _, typ := range sortedKeys(cfg.Types) {
		name := cfg.Types[typ].File
		if name == "" {
			continue
		}
		f := byPath[filepath.ToSlash(filepath.Clean(name))]
		if f == nil {
			add("schema.types.%s.file: %s is not among the %s files of %s", typ, name, schemaSuffix, cfg.Dir)
			continue
		}
		if claimed[f] {
			add("schema.types.%s.file: %s is already that of another type; two types may not share a schema", typ, name)
			continue
		}
		types[typ], claimed[f], f.typ = f, true, typ
	}
	for _, f := range files {
		typ := strings.TrimSuffix(f.path[strings.LastIndexByte(f.path, '/')+1:], schemaSuffix)
		if claimed[f] {
			continue
		}
		f.typ = typ
		if other := types[typ]; other != nil {
			add("%s: its type %q is already that of %s; rename one, or give it another type under schema.types", f.path, typ, other.path)
			continue
		}
		types[typ] = f
	}
	for _, typ := range sortedKeys(cfg.Types) {
		if t := cfg.Types[typ]; t.File == "" && t.Subject != "" && types[typ] == nil {
			add("schema.types.%s: %s has no %s%s; name its file under schema.types.%s.file", typ, cfg.Dir, typ, schemaSuffix, typ)
		}
	}
	if cfg.Registry != nil && cfg.Encoding.needsID() {
		bySubject := map[string]string{}
		for _, typ := range sortedKeys(types) {
			f := types[typ]
			subject := cfg.subject(typ, f.record())
			if subject == "" {
				add("%s: %q gives no subject for it; name one under schema.types.%s.subject", f.path, cfg.Subject, typ)
			} else if other, ok := bySubject[subject]; ok {
				add("%s: its subject %s is already that of type %q; name another under schema.types.%s.subject", f.path, subject, other, typ)
			}
			bySubject[subject] = typ
		}
	}
	return types
}
