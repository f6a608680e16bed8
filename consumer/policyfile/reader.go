package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/idemq/idemq/consumer"
)

type position struct{ line, column int }

// reader walks a document and collects problems.
type reader struct {
	at       map[string]position // of fields that are there
	problems []Problem
}

func (r *reader) bad(path, value, wrong, remedy string) {
	r.badAt(r.place(path), path, value, wrong, remedy)
}

func (r *reader) badAt(at position, path, value, wrong, remedy string) {
	r.problems = append(r.problems, Problem{at.line, at.column, consumer.Problem{Field: path, Value: value, Wrong: wrong, Remedy: remedy}})
}

// place is where path is, or the innermost section around it.
func (r *reader) place(path string) position {
	for path != "" {
		if at, ok := r.at[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return position{1, 1}
}

func (r *reader) sorted() []Problem {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

func where(n ast.Node) position {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
	}
	return position{1, 1}
}

// document parses text and reads its one document.
func (r *reader) document(text []byte, fs []field) {
	file, err := parse(text)
	if err != nil {
		at, what := position{1, 1}, err.Error()
		var place yaml.Error
		if errors.As(err, &place) {
			what = place.GetMessage()
			if t := place.GetToken(); t != nil && t.Position != nil {
				at = position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
			}
		}
		r.badAt(at, "YAML", "", what, "mend the syntax; nothing else was looked at")
		return
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, isComment := doc.Body.(*ast.CommentGroupNode); isComment {
			continue
		}
		if body != nil {
			r.badAt(where(doc.Body), "YAML", "", "is a second document", "put one policy into a file")
			return
		}
		body = doc.Body
	}
	if body != nil {
		r.section("", body, fs)
	}
	if _, ok := r.at["version"]; !ok {
		r.bad("version", "", "is missing", "begin the file with version: 1")
	}
}

// parse keeps duplicate keys, to report them with all else. A panic of the parser is an error in the text: it must not end a process.
func parse(text []byte) (file *ast.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			file, err = nil, errors.New("cannot be parsed")
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// section reads the fields of a mapping.
func (r *reader) section(path string, n ast.Node, fs []field) {
	m, ok := n.(ast.MapNode)
	if !ok {
		r.badAt(where(n), cmp.Or(path, "policy"), text(n), "is not a section", "write its fields below it, indented, each as name: value")
		return
	}
	seen := map[string]position{}
	for it := m.MapRange(); it.Next(); {
		key, at := text(it.Key()), where(it.Key())
		full := key
		if path != "" {
			full = path + "." + key
		}
		i := slices.IndexFunc(fs, func(f field) bool { return f.name == key })
		first, twice := seen[key]
		seen[key] = at
		switch {
		case i < 0:
			r.badAt(at, full, "", "unknown field", suggest(key, path, fs))
			continue
		case twice:
			r.badAt(at, full, "", "is there twice", fmt.Sprintf("remove one; the first is on line %d", first.line))
			continue
		}
		r.at[full] = where(it.Value())
		if _, null := it.Value().(*ast.NullNode); null || it.Value() == nil {
			r.at[full] = at
			r.bad(full, "", "has no value", "write one, or leave the field out for its default")
			continue
		}
		fs[i].value.read(r, full, it.Value())
	}
}

// scalar is the text of a single value.
func (r *reader) scalar(path string, n ast.Node) (string, bool) {
	if _, ok := r.at[path]; !ok {
		r.at[path] = where(n)
	}
	switch v := n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return text(v), true
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		r.bad(path, "", "uses an anchor, an alias or a tag", "write the value out")
	case *ast.SequenceNode:
		r.bad(path, "", "is a list", "write one value")
	case ast.MapNode:
		r.bad(path, "", "is a section", "write one value")
	default:
		r.bad(path, "", "is not a single value", "write one value on the same line")
	}
	return "", false
}

func (r *reader) list(path string, n ast.Node, example string) []ast.Node {
	s, ok := n.(*ast.SequenceNode)
	switch {
	case !ok:
		r.bad(path, text(n), "is not a list", "write it like "+example)
		return nil
	case len(s.Values) == 0:
		r.bad(path, "", "is empty", "leave the field out")
	}
	return s.Values
}

// text is a scalar as it is written, without quotes; empty for others.
func text(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, nil:
		return ""
	}
	if t := n.GetToken(); t != nil && t.Type != token.MappingValueType {
		return t.Value
	}
	return ""
}

// check adds what consumer.Policy itself finds, unless it follows from a field that could not be read.
func (r *reader) check(p consumer.Policy) {
	unread := map[string]bool{}
	for _, known := range r.problems {
		unread[listOf(known.Field)] = true
	}
	for _, found := range p.Validate() {
		about := strings.FieldsFunc(found.Wrong+" "+found.Remedy, func(c rune) bool { return strings.ContainsRune(" ,;:", c) })
		about = append(about, listOf(found.Field))
		if !slices.ContainsFunc(about, func(word string) bool { return unread[word] }) {
			at := r.place(found.Field)
			r.problems = append(r.problems, Problem{at.line, at.column, found})
		}
	}
}

// listOf is the path of the list that holds an item, and any other path itself.
func listOf(path string) string {
	list, _, _ := strings.Cut(path, "[")
	return list
}
