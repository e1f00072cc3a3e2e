package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
)

// TestRowsComeBackFromFiles trains a job, takes its rows away and gives them back from what was written of them: exports to Parquet and to Arrow, and lines of JSON. Weights and
// states of the optimizers are what they were, to the bit. Files with a fault are refused by row and change nothing.
func TestRowsComeBackFromFiles(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testbed.FreeAddr(t)
	var lines bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&lines, "{\"y\": %d, \"user\": %d, \"item\": %d}\n", i%2, i%20, i%7)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := rolesJob(t, dir, address, fmt.Sprintf("{text: {files: [%q]}}", filepath.Join(dir, "a.jsonl")), "jsonl", "optimizer={sparse: {adam: {}}, bias: ftrl}")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		_, err := job.Serve(ctx, cfg, job.ServeOptions{})
		served <- err
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]string{}
	for _, format := range []string{"parquet", "arrow"} {
		e, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: r.Snapshot, Format: format, Dir: filepath.Join(dir, format), State: true})
		if err != nil {
			t.Fatal(err)
		}
		exported[format] = e.Dir
	}
	rows := map[int64]job.Entry{}
	table := ""
	err = job.FollowChanges(ctx, cfg, job.ChangesOptions{
		Consumer: "test", Weights: true, Flush: func() error { return nil },
		Give: func(c *job.Change) error {
			if c.Entry != nil {
				table, rows[c.ID] = c.Table, *c.Entry
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := slices.Sorted(maps.Keys(rows))
	lookup := func() map[int64]job.Entry {
		t.Helper()
		got, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: table, IDs: ids})
		if err != nil {
			t.Fatal(err)
		}
		out := map[int64]job.Entry{}
		for _, e := range got.Entries {
			out[e.ID] = e
		}
		return out
	}
	same := func(a, b map[int64]job.Entry) string { // edits are no examples, and are as new as the newest
		return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(job.Entry{}, "Occurrences", "Updated"))
	}
	if diff := same(rows, lookup()); diff != "" {
		t.Fatalf("rows (-changes +lookup):\n%s", diff)
	}
	var written bytes.Buffer
	for _, id := range ids {
		if err := json.NewEncoder(&written).Encode(&job.Change{Entry: new(rows[id])}); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{filepath.Join(exported["parquet"], table, "*.parquet")}
	for name, o := range map[string]job.EditOptions{"parquet": {Parquet: files}, "arrow": {Arrow: []string{filepath.Join(exported["arrow"], table, "*.arrow")}}, "json": {From: &written}} {
		if _, err := job.Edit(ctx, cfg, job.EditOptions{Op: param.Reinitialize, Table: table, IDs: ids}); err != nil {
			t.Fatal(err)
		}
		if same(rows, lookup()) == "" {
			t.Fatal("nothing was taken away")
		}
		o.Op, o.Table = param.AssignState, table
		got, err := job.Edit(ctx, cfg, o)
		if err != nil || got.Edited != int64(len(ids)) || got.Operation != "assign-state" {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if diff := same(rows, lookup()); diff != "" {
			t.Fatalf("%s: rows (-trained +given back):\n%s", name, diff)
		}
	}
	// Weights alone leave the states, ids alone take both.
	if _, err := job.Edit(ctx, cfg, job.EditOptions{Op: param.AssignAdd, Table: table, Parquet: files}); err != nil {
		t.Fatal(err)
	}
	for id, e := range lookup() {
		want := rows[id]
		want.Weights = slices.Clone(want.Weights)
		for i := range want.Weights {
			want.Weights[i] *= 2
		}
		if diff := same(map[int64]job.Entry{id: want}, map[int64]job.Entry{id: e}); diff != "" {
			t.Fatalf("added to itself (-want +got):\n%s", diff)
		}
	}

	type row struct {
		FID   *int64    `parquet:"fid,optional"`
		Bias  []float32 `parquet:"weights_bias,list"`
		Vec   []float32 `parquet:"weights_vec,list"`
		FTRL  []float32 `parquet:"state_bias,list"`
		Adam  []float32 `parquet:"state_vec,list"`
		Other string    `parquet:"other"`
	}
	good := func() row {
		return row{new(ids[0]), make([]float32, 1), make([]float32, 4), []float32{1, 0}, make([]float32, 10), "x"}
	}
	before := lookup()
	refused := func(name string, o job.EditOptions, want ...string) {
		t.Helper()
		if o.Table = table; o.Op == param.Train {
			o.Op = param.AssignState
		}
		_, err := job.Edit(ctx, cfg, o)
		if !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want one about %q", name, err, w)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*row)
		want   string
	}{
		"no id":         {func(r *row) { r.FID = nil }, "fid is null"},
		"short weights": {func(r *row) { r.Vec = r.Vec[:3] }, "3 numbers in weights_vec, want 4"},
		"short state":   {func(r *row) { r.Adam = nil }, "0 numbers in state_vec, want 10"},
		"no number":     {func(r *row) { r.Vec[1] = float32(math.NaN()) }, "weight 2 is NaN"},
		"bad sum":       {func(r *row) { r.FTRL[0] = -1 }, "segment bias, ftrl: its sum of squares is not above 0"},
		"bad mean":      {func(r *row) { r.Adam[7] = -1 }, "segment vec, adam: its mean square is below 0"},
	} {
		path := filepath.Join(dir, "bad.parquet")
		bad := good()
		*bad.FID++ // another one than that of the rows before
		c.change(&bad)
		if err := parquet.WriteFile(path, []row{good(), bad}); err != nil {
			t.Fatal(err)
		}
		refused(name, job.EditOptions{Parquet: []string{path}}, "bad.parquet", "row 2", c.want)
	}
	write := func(name string, content any) (paths []string) {
		t.Helper()
		path := filepath.Join(dir, name)
		var err error
		switch content := content.(type) {
		case []row:
			err = parquet.WriteFile(path, content)
		case string:
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return []string{path}
	}
	refused("an id twice", job.EditOptions{Parquet: slices.Concat(write("c.parquet", []row{good()}), write("d.parquet", []row{good()}))}, "row 1 and row 2")
	refused("no Parquet", job.EditOptions{Parquet: write("e.parquet", "nothing of the kind")}, "e.parquet")
	refused("no file", job.EditOptions{Parquet: []string{filepath.Join(dir, "none.parquet")}}, "none.parquet")
	path := filepath.Join(dir, "f.parquet")
	if err := parquet.WriteFile(path, []struct {
		FID int64     `parquet:"fid"`
		Vec []float32 `parquet:"weight_vec,list"`
	}{{1, nil}}); err != nil {
		t.Fatal(err)
	}
	refused("no column", job.EditOptions{Parquet: []string{path}}, `"weights_bias" is not there`, `did you mean "weight_vec"`)
	refused("no values", job.EditOptions{IDs: ids}, "without values")
	arrows, err := filepath.Glob(filepath.Join(exported["arrow"], table, "*.arrow"))
	if err != nil || len(arrows) == 0 {
		t.Fatalf("%q, %v", arrows, err)
	}
	whole, err := os.ReadFile(arrows[0])
	if err != nil {
		t.Fatal(err)
	}
	refused("half of an Arrow file", job.EditOptions{Arrow: write("g.arrow", string(whole[:len(whole)/2]))}, "g.arrow", "not a sound file")
	refused("Arrow of another table", job.EditOptions{Arrow: write("h.arrow", strings.ReplaceAll(string(whole), "weights_vec", "weights_vex"))}, "h.arrow", `"weights_vec" is not there, did you mean "weights_vex"?`)
	refused("an id in two Arrow files", job.EditOptions{Arrow: slices.Concat(arrows[:1], write("i.arrow", string(whole)))}, "is there twice, as row")
	refused("no Arrow file", job.EditOptions{Arrow: []string{filepath.Join(dir, "none.arrow")}}, "none.arrow")
	for name, line := range map[string][2]string{
		"no state":        {`{"id": 1, "weights": [0, 0, 0, 0, 0]}`, `no state of segment "bias", whose rule, ftrl, keeps 2`},
		"another segment": {`{"id": 1, "weights": [0, 0, 0, 0, 0], "segments": [{"name": "big", "state": [1]}]}`, `no segment "big"`},
		"another rule":    {`{"id": 1, "weights": [0, 0, 0, 0, 0], "segments": [{"name": "bias", "optimizer": "adagrad", "state": [1, 1]}]}`, `is of adagrad, the job's rule is ftrl`},
		"short state":     {`{"id": 1, "weights": [0, 0, 0, 0, 0], "segments": [{"name": "bias", "state": [1]}]}`, `1 numbers of state of segment "bias"`},
		"bad sum":         {`{"id": 1, "weights": [0, 0, 0, 0, 0], "segments": [{"name": "bias", "state": [0, 1]}, {"name": "vec", "state": [0,0,0,0,0,0,0,0,0,0]}]}`, `its sum of squares is not above 0`},
		"another table":   {`{"id": 1, "table": "other", "weights": [0, 0, 0, 0, 0]}`, `is of table "other"`},
		"no float32":      {`{"id": 1, "weights": [0, 0, 0, 0, 1e39]}`, "object 1"},
	} {
		refused(name, job.EditOptions{From: strings.NewReader(line[0])}, "object 1", line[1])
	}
	if diff := same(before, lookup()); diff != "" {
		t.Errorf("what was refused has changed rows:\n%s", diff)
	}
}
