package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words must not be in comments: each says less to a newcomer than the field's own, which is beside it. ARCHITECTURE.md has the
// glossary. A word that has a plain use too is not in the list.
var words = []struct{ pattern, instead string }{
	{`anew`, "again, or start over"},
	{`goes on|go on|going on|went on`, "continue, resume"},
	{`whoever`, "the caller, the client, the next owner"},
	{`hears|heard of`, "is notified of, gets"},
	{`tells? (that|whether)`, "reports whether, is set if"},
	{`told apart|tells? \w+ apart`, "distinguish"},
	{`signs? of life`, "heartbeat"},
	{`stood still|stands? (at|twice)`, "stalled, is at, occurs twice"},
	{`sees to it`, "ensures"},
	{`look-ups?`, "lookup"},
	{`slow twins?`, "slow reference"},
	{`lies? behind|goes behind`, "follows; is downstream in a graph"},
	{`DESIGN \d+|issue #?\d+`, "what that text says: readers do not have it"},
}

// names must not be given in the program itself, alone or as the beginning of one such as saidAt.
var names = []struct{ pattern, instead string }{
	{`beat`, "lastSeen"},
	{`stood`, "pause, stalled"},
	{`said`, "logged, output, given"},
	{`heard`, "lastSeen"},
	{`look`, "current, probe, poll"},
}

// TestPlainWords: comments and names use the words of the glossary. What an Example prints is no comment.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	var all []string
	for _, w := range words {
		all = append(all, "("+w.pattern+")")
	}
	re := regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
	var bad []string
	for _, n := range names {
		bad = append(bad, "("+n.pattern+")")
	}
	name := regexp.MustCompile(`^(?:` + strings.Join(bad, "|") + `)(?:$|[A-Z])`)
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || name == "proto" || path != root && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || d.Name() == "words_test.go" {
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, "_test.go") {
			ast.Inspect(f, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				if m := name.FindStringSubmatch(id.Name); m != nil {
					i := slices.IndexFunc(m[1:], func(s string) bool { return s != "" })
					t.Errorf("%s: the name %s: better: %s", set.Position(id.Pos()), id.Name, names[i].instead)
				}
				return true
			})
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				seen++
				if strings.HasPrefix(c.Text, "//\t") || strings.HasPrefix(c.Text, "// \"") { // a drawing, or printed text
					continue
				}
				m := re.FindStringSubmatch(c.Text)
				if m == nil {
					continue
				}
				for i, w := range words {
					if m[i+1] != "" {
						t.Errorf("%s: %q: better: %s", set.Position(c.Pos()), m[0], w.instead)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10000 {
		t.Fatalf("found %d comments", seen)
	}
}
