package sqlstore

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql
var embedded embed.FS

// expressions are the files that are parts of statements.
var expressions = []string{"now", "identity", "incarnation", "columns"}

// statement is one file, ready to be sent.
type statement struct {
	query  string   // returns the row that it wrote, where the dialect can
	silent string   // the same without the row, for transactions that are not ours
	names  []string // of the arguments, in order
}

// statements of a dialect, with the names of one log in them.
type statements map[string]statement

// args are the parameters of a statement by name.
type args map[string]any

// bind puts the arguments of s in order. Nil and "not there" are told apart: a forgotten argument is an error.
func (s statement) bind(a args) ([]any, error) {
	out := make([]any, len(s.names))
	for i, name := range s.names {
		v, ok := a[name]
		if !ok {
			return nil, fmt.Errorf("sqlstore: no argument :%s", name)
		}
		out[i] = v
	}
	return out, nil
}

// load reads the statements of d for the tables that cfg names. joined: the incarnation has the server's identity in it.
func load(files fs.FS, d *dialect, cfg Config, joined bool) (statements, error) {
	texts := map[string]string{}
	entries, err := fs.ReadDir(files, string(d.name))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := fs.ReadFile(files, path.Join(string(d.name), e.Name()))
		if err != nil {
			return nil, err
		}
		texts[strings.TrimSuffix(e.Name(), ".sql")] = prefixColumns(withoutComments(string(b)), cfg.ColumnPrefix)
	}
	names := d.names(cfg)
	// Each expression may use the ones before it.
	for _, name := range expressions {
		text := expand(texts[name], names)
		if name == "identity" && !joined {
			text = "''"
		}
		names[name] = text
		delete(texts, name)
	}
	out := statements{}
	for name, text := range texts {
		s := statement{silent: expand(text, names)}
		names["returning"] = "RETURNING " + names["columns"]
		s.query = expand(text, names)
		delete(names, "returning")
		s.query, s.names = d.mark(s.query)
		s.silent, _ = d.mark(s.silent)
		out[name] = s
	}
	return out, nil
}

// names are the values of the placeholders that stand for tables.
func (d *dialect) names(cfg Config) map[string]string {
	quoted := func(name string) string { return d.quote + name + d.quote }
	qualified := func(name string) string {
		if cfg.Schema == "" {
			return quoted(name)
		}
		return quoted(cfg.Schema) + "." + quoted(name)
	}
	n := map[string]string{
		"log": qualified(cfg.Table), "meta": qualified(cfg.Table + "_meta"), "table": quoted(cfg.Table), "index": quoted(cfg.Table + "_purge"),
	}
	if d.indexInSchema {
		n["index"] = qualified(cfg.Table + "_purge")
	}
	return n
}

// columnNames are those of both tables, as the files write them.
var columnNames = func() (names []string) {
	for _, c := range slices.Concat(keyColumns, otherColumns) {
		names = append(names, c.name)
	}
	return append(names, metaColumns...)
}()

// word is what can be told apart in a statement: a string literal, a placeholder, a parameter or the name of anything.
var word = regexp.MustCompile(`'[^']*'|\{\{\w+\}\}|:\w+|\w+`)

// prefixColumns puts prefix before the names of columns in a statement without comments. An alias is never called like a column.
func prefixColumns(text, prefix string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if slices.Contains(columnNames, w) {
			return prefix + w
		}
		return w
	})
}

// withoutComments drops the lines that are comments. A comment at the end of a line is not for these files: see the tests.
func withoutComments(text string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "--") })
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)

// expand replaces {{name}}. An unknown name stays, and the database refuses it; the tests look for it.
func expand(text string, names map[string]string) string {
	return strings.TrimSpace(placeholder.ReplaceAllStringFunc(text, func(p string) string {
		name := p[2 : len(p)-2]
		if v, ok := names[name]; ok || name == "returning" {
			return v
		}
		return p
	}))
}

var parameter = regexp.MustCompile(`:[a-z_]+`)

// mark replaces :name by the dialect's placeholder and returns the names in the order in which arguments are to come.
func (d *dialect) mark(text string) (query string, names []string) {
	query = parameter.ReplaceAllStringFunc(text, func(p string) string {
		name := p[1:]
		if !d.numbered {
			names = append(names, name)
			return "?"
		}
		at := slices.Index(names, name)
		if at < 0 {
			names = append(names, name)
			at = len(names) - 1
		}
		return fmt.Sprintf("$%d", at+1)
	})
	return query, names
}
