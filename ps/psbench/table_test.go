package psbench_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/ps/psbench"
)

// TestTable: each kind of comparison runs, with and without C++ programs, and leaves no file.
func TestTable(t *testing.T) {
	t.Parallel()
	if bench.CPUSeconds() == 0 {
		t.Skip("no processor time on this system")
	}
	o := bench.Options{
		Rounds: 1, Each: 5 * time.Millisecond, Rows: 1 << 15, Dir: t.TempDir(),
		Only: regexp.MustCompile("uniform, (known addresses|go map|two threads)|adagrad uniform|growth|gc"),
	}
	results, err := psbench.Table(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	against := map[string]string{
		"table lookup uniform, known addresses, 32768 rows": "known addresses", "table lookup uniform, go map, 32768 rows": "go map",
		"table lookup uniform, two threads, 32768 rows": "one thread", "table adagrad uniform, lookups, 32768 rows": "lookups",
	}
	compared := 0
	for _, r := range results {
		other := against[r.Name]
		switch {
		case other == "" && r.Ours < 0, other != "" && (r.Ours <= 0 || r.Theirs[other] <= 0 || r.Ratio <= 0 || r.Control <= 0):
			t.Errorf("got %+v", r)
		case other != "":
			compared++
		}
	}
	if compared < len(against)-1 || len(results) < compared+8 { // one needs a compiler
		t.Errorf("%d comparisons, %d results", compared, len(results))
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestTableBesideTorch: with an interpreter that has PyTorch lookups are compared, one that has not is an error where it was named, and so is one that is none.
func TestTableBesideTorch(t *testing.T) {
	t.Parallel()
	if bench.CPUSeconds() == 0 {
		t.Skip("no processor time on this system")
	}
	for _, tt := range []struct{ answers, err string }{
		{"echo ready; while read way n; do echo 0.5; done", ""},
		{"echo absent no module named torch", "absent no module named torch"},
		{"exit 3", "exit status 3"},
		{"echo ready; read way n; echo much", `torch answered "much"`},
	} {
		python := filepath.Join(t.TempDir(), "python3")
		if err := os.WriteFile(python, []byte("#!/bin/sh\n"+tt.answers+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		results, err := psbench.Table(t.Context(), bench.Options{
			Rounds: 1, Each: time.Millisecond, Rows: 1 << 10, Dir: t.TempDir(), Only: regexp.MustCompile("uniform, torch"), With: map[string]string{"torch": python},
		})
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %v", tt.answers, err)
		case tt.err == "" && (err != nil || len(results) != 1 || results[0].Theirs["torch"] <= 0 || results[0].Theirs["torch"] > 128*4096/.5/1e6*1.01):
			t.Errorf("%s: %+v, %v", tt.answers, results, err)
		}
	}
}
