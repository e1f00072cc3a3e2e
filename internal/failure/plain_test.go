package failure_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/failure"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	config, down := failure.Kind(failure.Config, "bad configuration"), failure.Kind(failure.Unavailable, "unavailable")
	full := failure.New(failure.NoSpace, "no space left for the log")
	refused := errors.New("connection refused")
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("job: no folder is named: %w", config), "no folder is named"},
		{fmt.Errorf("kafkasource: splits of topic %q: broker b:1: %w: %w", "x", refused, down), `splits of topic "x": broker b:1: connection refused`},
		{fmt.Errorf("job: %w; set it to another", fmt.Errorf("ps: shard 1: %w", config)), "shard 1; set it to another"},
		{fmt.Errorf("push: %w", fmt.Errorf("ps: %w", fmt.Errorf("wal: writing m/click: %w", full))), "push: writing m/click: no space left for the log"},
		{errors.Join(fmt.Errorf("job: a: %w", down), fmt.Errorf("job: b: %w", config)), "a\nb"},
		{fmt.Errorf("ps: shard 0: %w: %w", down, refused), "shard 0: connection refused"},
		{fmt.Errorf("the broker is unavailable: %w", config), "the broker is unavailable"},
		{fmt.Errorf("the topic unavailable: x: %w (see below)", down), "the topic unavailable: x (see below)"},
		{config, "bad configuration"},
		{errors.New("job.yaml:1:1: model: is missing"), "job.yaml:1:1: model: is missing"},
		{errors.New("job: "), "job: "},
		{fmt.Errorf("%w", refused), "connection refused"},
	} {
		if got := failure.Plain(c.err); got != c.want {
			t.Errorf("%q: %q, want %q", c.err, got, c.want)
		}
	}
}

// TestPlainKnowsAll looks through the source: errors that begin with the name of their package lose it, and an error whose text could end a
// sentence of every error is a kind.
func TestPlainKnowsAll(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	prefixes, sentinels := map[string]string{}, map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "examples" || name == "testbed" || name == "tools" || strings.HasSuffix(name, "test")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			of, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := of.X.(*ast.Ident)
			if !ok {
				return true
			}
			literal := func(e ast.Expr) string {
				if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					s, _ := strconv.Unquote(lit.Value)
					return s
				}
				return ""
			}
			switch name := from.Name + "." + of.Sel.Name; name {
			case "fmt.Errorf", "errors.New", "fault.Config":
				if word, _, ok := strings.Cut(literal(call.Args[0]), ": "); ok && word == f.Name.Name {
					prefixes[word] = path
				}
			case "failure.New", "failure.Kind":
				if len(call.Args) == 2 {
					sentinels[literal(call.Args[1])] = of.Sel.Name
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(prefixes) < 30 || len(sentinels) < 20 {
		t.Fatalf("%d names of packages and %d errors with codes were found", len(prefixes), len(sentinels))
	}
	for word, path := range prefixes {
		if got := failure.Plain(errors.New(word + ": what failed")); got != "what failed" {
			t.Errorf("%s begins errors with %q, which is shown to users: add it to the list", path, word)
		}
	}
	kinds := map[string]bool{"bad configuration": true, "schema mismatch": true, "unavailable": true, "bad data": true, "not admitted": true, "layout mismatch": true, "not the same job": true}
	for text, maker := range sentinels {
		if kinds[text] != (maker == "Kind") {
			t.Errorf("%q is made by failure.%s: whether it says anything beside its kind must be in the test's list too", text, maker)
		}
		of := failure.New(failure.Config, text)
		if maker == "Kind" {
			of = failure.Kind(failure.Config, text)
		}
		got := failure.Plain(fmt.Errorf("job: writing x: %w; do this", of))
		if want := "writing x: " + text + "; do this"; maker == "New" && got != want || maker == "Kind" && got != "writing x; do this" {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
