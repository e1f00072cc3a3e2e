package job_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// renameData writes rows of three ids.
func renameData(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	r := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		user, item, genre := r.IntN(40), r.IntN(30), r.IntN(5)
		fmt.Fprintf(&b, "%d,%d,%d,%d,%d\n", (user+item)%2, (user+genre)%2, user, item, genre)
	}
	path := filepath.Join(dir, "train.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRenamedTable: a table that features call otherwise now keeps its rows, in the job's own dir and from another run's, and the usual table takes part.
func TestRenamedTable(t *testing.T) {
	t.Parallel()
	const own, from = "own dir", "restore.from"
	for _, c := range []struct{ was, is, rename string }{
		{"table: old", "table: new", "{old: new}"},
		{"table: old", "", "{old: embedding}"},
		{"", "table: new", "{embedding: new}"},
	} {
		for _, where := range []string{own, from} {
			t.Run(fmt.Sprintf("%q to %q, %s", c.was, c.is, where), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				data := renameData(t, dir)
				config := func(table, run string, set ...string) *job.Config {
					t.Helper()
					if table != "" {
						table = ", " + table
					}
					cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: renamed
source: {text: {files: [%q]}}
parse: {format: csv, columns: [y, z, user, item, genre], features: [{name: user, slot: 1%[2]s}, {name: item, slot: 2%[2]s}], label: y}
model: {fm: {dim: 4}}
train: {max_examples: 1000}
`, data, table), "renamed.yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, run)}, set...)})
					if err != nil {
						t.Fatal(err)
					}
					return cfg
				}
				first, err := job.Run(t.Context(), config(c.was, "one"), job.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				run, set := "one", []string{}
				if where == from {
					run, set = "two", []string{"restore.from=" + filepath.Join(dir, "one")}
				}
				_, err = job.Run(t.Context(), config(c.is, run, set...), job.RunOptions{})
				if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "rename: "+c.rename) {
					t.Fatalf("without the rename: %v; want one that names it", err)
				}
				set = append(set, "restore.rename="+c.rename)
				if found, err := job.Check(t.Context(), config(c.is, run, set...)); err != nil || len(found) > 0 {
					t.Errorf("check: %+v, %v", found, err)
				}
				second, err := job.Run(t.Context(), config(c.is, run, set...), job.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				made, err := job.InspectSnapshot(t.Context(), second.ResumedFrom)
				if err != nil {
					t.Fatal(err)
				}
				was, err := job.InspectSnapshot(t.Context(), first.Snapshot)
				if err != nil || made.Rows != was.Rows || was.Rows == 0 {
					t.Errorf("%d rows of %d came along, %v", made.Rows, was.Rows, err)
				}
				// From then on the rename says nothing, and may stay.
				for _, set := range [][]string{set, nil} {
					if _, err := job.Run(t.Context(), config(c.is, run, set...), job.RunOptions{}); err != nil {
						t.Errorf("with %q: %v", set, err)
					}
				}
			})
		}
	}
}

// TestAllPoliciesAtOnce: a table has another name, a feature comes and one goes, a layer is wider and a head is new: one message has all that restore needs.
func TestAllPoliciesAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := renameData(t, dir)
	config := func(features, heads, hidden string, set ...string) *job.Config {
		t.Helper()
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: policies
source: {text: {files: [%q]}}
parse: {format: csv, columns: [y, z, user, item, genre], features: %s}
heads: %s
model: {shared_bottom: {dim: 4, hidden: [%s]}}
train: {max_examples: 500}
`, data, features, heads, hidden), "policies.yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, "run")}, set...)})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	if _, err := job.Run(t.Context(), config("[{name: user, slot: 1, table: old}, {name: item, slot: 2, table: old}]", "[{name: y}]", "8"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	now := func(set ...string) *job.Config {
		return config("[{name: user, slot: 1, table: new}, {name: genre, slot: 3}]", "[{name: y}, {name: z}]", "12", set...)
	}
	_, err := job.Run(t.Context(), now(), job.RunOptions{})
	if !errors.Is(err, pipeline.ErrConfig) {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`set restore: (\{.*\}) \(grow`).FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("no setting in: %v", err)
	}
	for _, want := range []string{"rename: {old: new}", "features: {item: drop, genre: init}", "heads: {z: init}", "tables: {", "tensors: {"} {
		if !strings.Contains(m[1], want) {
			t.Errorf("%s lacks %s", m[1], want)
		}
	}
	var found []job.Finding
	if found, err = job.Check(t.Context(), now()); err != nil || len(found) != 1 || !strings.Contains(found[0].Message, m[1]) {
		t.Errorf("check: %+v, %v", found, err)
	}
	if _, err := job.Run(t.Context(), now("restore="+m[1]), job.RunOptions{}); err != nil {
		t.Errorf("with %s: %v", m[1], err)
	}
}
