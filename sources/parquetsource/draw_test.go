package parquetsource_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// draws returns the numbers that chance for the rows of a file goes by, row group by row group, each read from a row on.
func draws(t *testing.T, opts parquetsource.Options, from pipeline.Position) (out [][]int64) {
	t.Helper()
	opts.Draw = true
	src, err := parquetsource.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	splits, err := src.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range splits {
		r, err := src.Open(t.Context(), &pipeline.Env{Source: "test"}, s, from)
		if err != nil {
			t.Fatal(err)
		}
		var group []int64
		for {
			b, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			group = append(group, b.Column(pipeline.ColDraw).(*array.Int64).Int64Values()...)
			b.Release()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		out = append(out, group)
	}
	return out
}

// TestDraw: no two rows have one number, equal ones in equal row groups included. Name, columns, batches and where reading begins make no difference, and what
// another file holds does.
func TestDraw(t *testing.T) {
	t.Parallel()
	rows := random(rand.New(rand.NewPCG(3, 4)), 250)
	rows = append(rows, rows...) // groups of 50, each there twice
	dir := t.TempDir()
	path := write(t, dir, "a.parquet", encode(t, rows, 50))
	all := everything(t, path)
	opts := parquetsource.Options{Files: []string{path}, Columns: all}
	want := draws(t, opts, 0)
	seen := map[int64]bool{}
	for _, group := range want {
		for _, v := range group {
			seen[v] = true
		}
	}
	if len(want) != 10 || len(seen) != len(rows) {
		t.Fatalf("%d rows in %d row groups have %d numbers", len(rows), len(want), len(seen))
	}
	for name, same := range map[string]parquetsource.Options{
		"renamed":        {Files: []string{write(t, t.TempDir(), "b.parquet", encode(t, rows, 50))}, Columns: all},
		"another column": {Files: []string{path}, Columns: arrow.NewSchema(all.Fields()[2:3], nil)},
		"small batches":  {Files: []string{path}, Columns: all, BatchRows: 7},
		"appended to":    {Files: []string{write(t, t.TempDir(), "a.parquet", encode(t, append(append([]row(nil), rows...), rows[:30]...), 50))}, Columns: all},
	} {
		if diff := cmp.Diff(want, draws(t, same, 0)[:len(want)]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for i, group := range draws(t, opts, 33) {
		if diff := cmp.Diff(want[i][33:], group); diff != "" {
			t.Errorf("from the middle on, row group %d (-want +got):\n%s", i, diff)
		}
	}
	for _, group := range draws(t, parquetsource.Options{Files: []string{write(t, dir, "other.parquet", encode(t, rows[1:], 50))}, Columns: all}, 0) {
		for _, v := range group {
			if seen[v] {
				t.Fatalf("a row of another file has the number %d too", v)
			}
		}
	}
}
