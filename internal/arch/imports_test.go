// Package arch_test keeps the import table of the repository (see CONTRIBUTING.md).
package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The module and its folder, seen from this one.
const (
	mod  = "github.com/monolith-go/monolith/"
	root = "../.."
)

// layers lists, for each top-level folder, the folders it may import besides
// itself. A folder missing from the list fails the test. Test files are free.
var layers = map[string][]string{
	"proto":      {},
	"internal":   {"proto"},
	"pipeline":   {"internal"},
	"model":      {"internal", "pipeline/fid"},
	"ps":         {"internal", "proto", "pipeline/fid", "pipeline/position", "model/optim", "model/param", "model/score"},
	"sources":    {"internal", "proto", "pipeline", "ps/snapshot", "ps/table"},
	"transforms": {"internal", "proto", "pipeline", "model"},
	"sinks":      {"internal", "proto", "pipeline", "model", "ps"},
	"export":     {"internal", "proto", "pipeline", "model", "ps", "sinks/filesink"},
	"serving":    {"internal", "proto", "pipeline", "model", "export", "transforms"},
	"replica":    {"internal", "model", "ps", "export"},
	"runners":    {"internal", "proto", "pipeline"},
	"job":        {"internal", "proto", "pipeline", "model", "ps", "sources", "transforms", "sinks", "export", "serving", "replica", "runners"},
	"cmd":        {"*"},
	"examples":   {"*"},
}

// psRooms lists, for each room of the parameter server, the others it may import: shards and the coordinator meet in the
// contract (ps), and the coordinator alone knows shards of its own process.
var psRooms = map[string][]string{
	"ps":             {"ps/snapshot", "ps/table", "ps/tally"},
	"ps/shard":       {"ps", "ps/snapshot", "ps/table", "ps/tally", "ps/wal"},
	"ps/coordinator": {"ps", "ps/shard", "ps/snapshot", "ps/table", "ps/tally"},
	"ps/table":       {},
	"ps/tally":       {"ps/table"},
	"ps/snapshot":    {"ps/table"},
	"ps/upload":      {"ps", "ps/snapshot"},
	"ps/wal":         {},
	"ps/wire":        {"ps"},
	"ps/rpc":         {"ps", "ps/shard", "ps/coordinator", "ps/snapshot", "ps/table", "ps/tally", "ps/wire"},
	"ps/pstest":      {"ps", "ps/coordinator", "ps/snapshot", "ps/table", "ps/tally"},
	"ps/psbench":     {"ps", "ps/coordinator", "ps/shard", "ps/table", "ps/wire"},
}

// TestCoreLinksNoEngine: a program that imports only the contract and the parameter server links neither Beam nor Parquet
// nor the client of a store or a cloud, and the contract no gRPC either; one that reads jobs links nothing that runs them.
func TestCoreLinksNoEngine(t *testing.T) {
	for pkg, forbidden := range map[string][]string{
		"pipeline":       {"github.com/apache/beam", "parquet", "cloud.google.com", "github.com/aws", "google.golang.org/grpc", "github.com/segmentio", "github.com/twmb", "github.com/minio", "github.com/colinmarc"},
		"ps":             {"github.com/apache/beam", "parquet", "cloud.google.com", "github.com/aws", "github.com/segmentio", "github.com/twmb", "google.golang.org/grpc", "github.com/minio", "github.com/colinmarc"},
		"ps/coordinator": {"github.com/apache/beam", "parquet", "cloud.google.com", "github.com/aws", "github.com/segmentio", "github.com/twmb", "google.golang.org/grpc", "github.com/minio", "github.com/colinmarc"},
		"job/spec":       {"github.com/apache/beam", "parquet", "cloud.google.com", "github.com/aws", "google.golang.org/grpc", "github.com/segmentio", "github.com/twmb", "github.com/minio", "github.com/colinmarc"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", mod+pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			for _, f := range forbidden {
				if strings.Contains(dep, f) {
					t.Errorf("%s links %s", pkg, strings.TrimSpace(dep))
				}
			}
		}
	}
}

// clients are the rooms that alone may import the client of a store, and the one that opens them.
var clients = map[string]string{
	"github.com/minio":          "internal/fsx/s3fs",
	"github.com/colinmarc":      "internal/fsx/hdfsfs",
	mod + "internal/fsx/s3fs":   "internal/fsx/remote",
	mod + "internal/fsx/hdfsfs": "internal/fsx/remote",
}

// TestImportDirection reads the files itself: a `go list` subprocess would be
// invisible to the test cache, and a violation would pass as "(cached)".
func TestImportDirection(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || name == "vendor" || path != root && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		top, _, sub := strings.Cut(filepath.ToSlash(rel), "/")
		if !sub {
			return nil // the root package's doc.go
		}
		allowed, ok := layers[top]
		if !ok {
			t.Errorf("%s: no layer rule for folder %q", rel, top)
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			for client, room := range clients {
				if dir := filepath.ToSlash(filepath.Dir(rel)); within(imp, client) && dir != room {
					t.Errorf("%s imports %s; only %s may", rel, imp, room)
				}
			}
			to, ours := strings.CutPrefix(imp, mod)
			if ours && top == "ps" && within(to, "ps") {
				room := filepath.ToSlash(filepath.Dir(rel))
				if may, ok := psRooms[room]; !ok || to != room && !slices.Contains(may, to) {
					t.Errorf("%s may not import %s", rel, to)
				}
			}
			if !ours || within(to, top) || slices.Contains(allowed, "*") {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return within(to, a) }) {
				t.Errorf("%s may not import %s", rel, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestComponentsStandInOnePlace: what a job can name is a file of job/components and a line of its list. The other packages of
// job know neither the names nor the packages, so that a new source, model, optimizer or dead letter changes none of them.
func TestComponentsStandInOnePlace(t *testing.T) {
	t.Parallel()
	list := filepath.Join(root, "job", "components", "components.go")
	f, err := parser.ParseFile(token.NewFileSet(), list, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			if k, ok := kv.Key.(*ast.Ident); ok && k.Name == "Name" {
				if v, ok := kv.Value.(*ast.BasicLit); ok {
					names[v.Value] = true
				}
			}
		}
		return true
	})
	if len(names) < 10 {
		t.Fatalf("%s: found %d names", list, len(names))
	}
	delete(names, `"file"`) // words of other keys too
	delete(names, `"text"`)
	delete(names, `"jsonl"`) // what records of text are, too
	delete(names, `"tsv"`)
	delete(names, `"auto"`) // what other keys can be, too
	for _, room := range []string{"", "spec", "wiring", "run", "inspect", "stored", "result", "component"} {
		files, err := filepath.Glob(filepath.Join(root, "job", room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				imp, _ := strconv.Unquote(spec.Path.Value)
				switch to := strings.TrimPrefix(imp, mod); {
				case to == "sources/epochsource", to == "sinks/gradsink", to == "sinks/metricsink", to == "sources/snapshotsource", to == "sources/memsource": // around any source; of any job; of what a job has learnt; of what a program says itself
				case within(to, "sources"), within(to, "sinks"):
					t.Errorf("%s imports %s; only job/components may", path, to)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && names[lit.Value] {
					t.Errorf("%s names the component %s; ask the section for what it can do instead", path, lit.Value)
				}
				return true
			})
		}
	}
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
