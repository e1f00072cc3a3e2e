package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestDurationsAreNotOfTheWallClock: how long something takes is the difference of two times of this process, which the system's clock being set does not change, and not that of
// a stored number: after a jump by an hour an output would have been busy for an hour, and a broker silent. What was at a time that others know, such as a snapshot's age, is a time.Time.
func TestDurationsAreNotOfTheWallClock(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		seen++
		ast.Inspect(file, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && len(c.Args) == 1 && (isTime(c, "Since") || isTime(c, "Until")) {
				if of, ok := c.Args[0].(*ast.CallExpr); ok && (isTime(of, "Unix") || isTime(of, "UnixMilli") || isTime(of, "UnixMicro")) {
					t.Errorf("%s: a duration from a stored number; keep the difference to a time.Time of this process", set.Position(c.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 100 {
		t.Fatalf("%d files, %v", seen, err)
	}
}

// isTime reports whether a call is of a function of package time.
func isTime(c *ast.CallExpr, name string) bool {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	of, ok := f.X.(*ast.Ident)
	return ok && of.Name == "time"
}
