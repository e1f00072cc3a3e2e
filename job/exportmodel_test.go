package job_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// trainTables trains a model of two tables on three shards, and returns the job.
func trainTables(t *testing.T) *job.Config {
	t.Helper()
	const text = `
version: 1
name: tables
source: {synthetic: {examples: 20000, splits: 2}}
parse:
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [8]}}
tables: [{name: users, sparse: {adam: {lr: 0.01}}}]
ps: {shards: 3}
`
	cfg, err := job.Decode([]byte(text), "tables.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// parameters is what a row of a table is: its numbers, and the bits of its weights and state.
type parameters struct {
	slot        int
	time, count int64
	bits        string
}

func bitsOf(lists ...[]float32) string {
	var b strings.Builder
	for _, list := range lists {
		for _, v := range list {
			fmt.Fprintf(&b, "%08x", math.Float32bits(v))
		}
	}
	return b.String()
}

// inTables reads the rows of a snapshot as the shards do.
func inTables(t *testing.T, path string, state bool) (tables map[string]map[int64]parameters, info *snapshot.Info) {
	t.Helper()
	s, err := snapshot.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tables = map[string]map[int64]parameters{}
	for i, tbl := range s.Info().Tables {
		rows := map[int64]parameters{}
		tables[tbl.Name] = rows
		if err := s.Rows(i, func(r *table.Rows) error {
			for k, key := range r.Keys {
				p := parameters{slot: fid.ID(key).Slot(), time: r.Times[k], count: int64(r.Counts[k]), bits: bitsOf(r.Weights[k*tbl.Dim():][:tbl.Dim()])}
				if state {
					p.bits += bitsOf(r.State[k*tbl.StateDim():][:tbl.StateDim()])
				}
				rows[key] = p
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return tables, s.Info()
}

// lists are the columns of a table's weights, and of its state.
func lists(tbl snapshot.Table, state bool) []string {
	var out []string
	for _, s := range tbl.Segments {
		out = append(out, "weights_"+s.Name)
	}
	for _, s := range tbl.Segments {
		if state && s.StateDim > 0 {
			out = append(out, "state_"+s.Name)
		}
	}
	return out
}

// inParquet reads the rows of a folder of Parquet files.
func inParquet(t *testing.T, dir string, columns []string) map[int64]parameters {
	t.Helper()
	long := arrow.PrimitiveTypes.Int64
	fields := []arrow.Field{{Name: "fid", Type: long}, {Name: "slot", Type: long}, {Name: "time", Type: long}, {Name: "count", Type: long}}
	for _, c := range columns {
		fields = append(fields, arrow.Field{Name: c, Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)})
	}
	src, err := parquetsource.New(parquetsource.Options{Files: []string{filepath.Join(dir, "*.parquet")}, Columns: arrow.NewSchema(fields, nil)})
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64]parameters{}
	pipelinetest.ReadAll(t, src, &pipeline.Env{}, func(_ pipeline.Split, b *pipeline.Batch) {
		number := func(name string, i int) int64 { return b.Column(name).(*array.Int64).Value(i) }
		for i := range b.NumRows() {
			p := parameters{slot: int(number("slot", i)), time: number("time", i), count: number("count", i)}
			for _, c := range columns {
				list := b.Column(c).(*array.List)
				from, to := list.ValueOffsets(i)
				p.bits += bitsOf(list.ListValues().(*array.Float32).Float32Values()[from:to])
			}
			if _, twice := out[number("fid", i)]; twice {
				t.Errorf("fid %d is there twice", number("fid", i))
			}
			out[number("fid", i)] = p
		}
	})
	return out
}

// inArrow reads the rows of a folder of Arrow files.
func inArrow(t *testing.T, dir string, columns []string) map[int64]parameters {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64]parameters{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ipc.NewFileReader(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for k := range r.NumRecords() {
			rec, err := r.RecordBatch(k)
			if err != nil {
				t.Fatal(err)
			}
			column := func(name string) arrow.Array { return rec.Column(rec.Schema().FieldIndices(name)[0]) }
			for i := range int(rec.NumRows()) {
				p := parameters{slot: int(column("slot").(*array.Int32).Value(i)), time: int64(column("time").(*array.Timestamp).Value(i)), count: column("count").(*array.Int64).Value(i)}
				for _, c := range columns {
					list := column(c).(*array.FixedSizeList)
					from, to := list.ValueOffsets(i)
					p.bits += bitsOf(list.ListValues().(*array.Float32).Float32Values()[from:to])
				}
				out[column("fid").(*array.Int64).Value(i)] = p
			}
		}
		if err := errors.Join(r.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	}
	return out
}

// TestExportedRows: files have the bits of the tables, as many rows as inspecting the snapshot counts, and with filters those that a loop keeps.
func TestExportedRows(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	seen, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := inTables(t, seen.Path, false)
	var times []int64
	for _, rows := range all {
		for _, p := range rows {
			times = append(times, p.time)
		}
	}
	slices.Sort(times)
	half := times[len(times)/2]
	for name, c := range map[string]struct {
		o    job.ExportModelOptions
		keep func(p parameters, norm float64) bool
	}{
		"all":     {job.ExportModelOptions{}, func(parameters, float64) bool { return true }},
		"state":   {job.ExportModelOptions{State: true, Workers: 3, RowsPerFile: 50}, func(parameters, float64) bool { return true }},
		"slots":   {job.ExportModelOptions{Slots: []string{"category", "1"}}, func(p parameters, _ float64) bool { return p.slot != 2 }},
		"updated": {job.ExportModelOptions{UpdatedAfter: time.UnixMicro(half)}, func(p parameters, _ float64) bool { return p.time > half }},
		"count":   {job.ExportModelOptions{MinCount: 3}, func(p parameters, _ float64) bool { return p.count >= 3 }},
		"norm":    {job.ExportModelOptions{MinNorm: .2, Slots: []string{"item"}}, func(p parameters, norm float64) bool { return p.slot == 2 && norm >= .2 }},
	} {
		for _, to := range []string{"parquet", "arrow"} {
			t.Run(name+"/"+to, func(t *testing.T) {
				t.Parallel()
				o := c.o
				o.Snapshot, o.Format, o.Dir = cfg.Dir, to, filepath.Join(t.TempDir(), "rows")
				r, err := job.ExportModel(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				tables, info := inTables(t, seen.Path, o.State)
				total := 0
				for i, tbl := range info.Tables {
					read := inParquet
					if to == "arrow" {
						read = inArrow
					}
					weights := map[int64]float64{}
					got := map[int64]parameters{}
					if r.Tables[i].Rows > 0 {
						got = read(t, r.Tables[i].Dir, lists(tbl, o.State))
					}
					maps.DeleteFunc(tables[tbl.Name], func(key int64, p parameters) bool {
						sum := 0.0
						for at := range tbl.Dim() {
							var bits uint32
							_, _ = fmt.Sscanf(p.bits[8*at:][:8], "%x", &bits)
							sum += float64(math.Float32frombits(bits)) * float64(math.Float32frombits(bits))
						}
						weights[key] = math.Sqrt(sum)
						return !c.keep(p, weights[key])
					})
					if !maps.Equal(got, tables[tbl.Name]) {
						t.Errorf("table %s: %d rows are in files, %d in the table, or others", tbl.Name, len(got), len(tables[tbl.Name]))
					}
					if int(r.Tables[i].Rows) != len(got) || r.Tables[i].Of != seen.Tables[i].Rows {
						t.Errorf("table %s: told of %+v, %d are there", tbl.Name, r.Tables[i], len(got))
					}
					total += len(got)
				}
				if total == 0 || int(r.Rows) != total || name == "all" && r.Rows != seen.Rows || name != "all" && name != "state" && r.Rows == seen.Rows {
					t.Errorf("%d rows are told of, %d there, the snapshot has %d", r.Rows, total, seen.Rows)
				}
				again, err := job.ExportModel(t.Context(), o)
				if err != nil || again.Rows != r.Rows || again.Tables[0].Earlier != r.Tables[0].Rows {
					t.Errorf("again: %+v, %v", again, err)
				}
			})
		}
	}
}

// TestExportFaults: what cannot be written, with what to do.
func TestExportFaults(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	base := job.ExportModelOptions{Snapshot: cfg.Dir, Format: "arrow", Dir: filepath.Join(t.TempDir(), "rows")}
	written, err := job.ExportModel(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	taken := filepath.Join(other, filepath.Base(written.Dir))
	if err := errors.Join(os.Mkdir(taken, 0o755), os.WriteFile(filepath.Join(taken, "x"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(o *job.ExportModelOptions)
		want   string
	}{
		"format":      {func(o *job.ExportModelOptions) { o.Format = "arow" }, `models are written as native, savedmodel, onnx, safetensors, parquet, arrow, not as "arow", did you mean "arrow"?`},
		"feature":     {func(o *job.ExportModelOptions) { o.Slots = []string{"itm"} }, `"itm" is neither a slot nor a sparse feature of the snapshot, which has ["category" "item" "user"], did you mean "item"?`},
		"dense":       {func(o *job.ExportModelOptions) { o.Slots = []string{"price"} }, `"price" is neither`},
		"slot":        {func(o *job.ExportModelOptions) { o.Slots = []string{"32768"} }, "slot 32768 is none of 0 to 32767"},
		"norm":        {func(o *job.ExportModelOptions) { o.MinNorm = math.NaN() }, "the least norm is NaN"},
		"time":        {func(o *job.ExportModelOptions) { o.UpdatedAfter = time.Unix(-5, 0) }, "before 1970"},
		"no folder":   {func(o *job.ExportModelOptions) { o.Dir = "" }, "no folder"},
		"other rows":  {func(o *job.ExportModelOptions) { o.Slots = []string{"item"} }, "has another export, which"},
		"other files": {func(o *job.ExportModelOptions) { o.Dir = other }, "is not empty"},
		"nothing":     {func(o *job.ExportModelOptions) { o.Snapshot = "" }, "no snapshot is named"},
		"no snapshot": {func(o *job.ExportModelOptions) { o.Snapshot = other }, "no snapshot in"},
		"typo":        {func(o *job.ExportModelOptions) { o.Snapshot = filepath.Join(filepath.Dir(cfg.Dir), "rum") }, `rum, which does not exist, did you mean "` + cfg.Dir + `"?`},
		"typo above":  {func(o *job.ExportModelOptions) { o.Snapshot = filepath.Join(filepath.Dir(cfg.Dir), "rum", "snapshots") }, `did you mean "` + cfg.Dir + `"?`},
		"gone":        {func(o *job.ExportModelOptions) { o.Snapshot = filepath.Join(other, "elsewhere") }, "elsewhere, which does not exist: train the job first"},
		"file":        {func(o *job.ExportModelOptions) { o.Snapshot = filepath.Join(taken, "x") }, "x, which is a file: train the job first"},
		"some rows":   {func(o *job.ExportModelOptions) { o.Format, o.MinCount = "native", 2 }, "a model as native has all of its rows"},
		"row numbers": {func(o *job.ExportModelOptions) { o.RowNumbers = true }, "row numbers in place of ids are of a model as onnx"},
		"keep":        {func(o *job.ExportModelOptions) { o.Keep = -1 }, "-1 exports cannot be kept"},
		"runner":      {func(o *job.ExportModelOptions) { o.Runner = "prism" }, "has no runner prism"},
		"dataflow":    {func(o *job.ExportModelOptions) { o.Runner = "dataflow" }, "no folder in common"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := base
			c.change(&o)
			if _, err := job.ExportModel(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one with %q", err, c.want)
			}
		})
	}
	nowhere := base
	nowhere.Dir = filepath.Join(taken, "x", "rows") // x is a file
	if _, err := job.ExportModel(t.Context(), nowhere); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a folder that cannot be made: %v", err)
	}
	damaged := base
	damaged.Dir = filepath.Join(t.TempDir(), "rows")
	seen, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), filepath.Base(seen.Path))
	if err := os.CopyFS(copied, os.DirFS(seen.Path)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(copied, "rows-0001-0002.arrow"), 700); err != nil {
		t.Fatal(err)
	}
	damaged.Snapshot = copied
	if _, err := job.ExportModel(t.Context(), damaged); !errors.Is(err, pipeline.ErrBadData) || !strings.Contains(err.Error(), "rows-0001-0002.arrow: 700 bytes of") {
		t.Errorf("damaged: %v", err)
	}
}

// TestExportedModel: all formats of whole models are there once they are complete, and a second run finds them; the native one is looked into and has all rows.
func TestExportedModel(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	tables, info := inTables(t, filepath.Join(cfg.Dir, "snapshots", "snap-00000001"), false)
	for _, format := range []string{"native", "savedmodel", "onnx", "safetensors"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			o := job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: filepath.Join(t.TempDir(), "models"), Workers: 2, RowsPerFile: 50}
			r, err := job.ExportModel(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Dir != filepath.Join(o.Dir, "1") || r.Rows != info.Rows() || r.Tables[0].Earlier != 0 || r.Drained {
				t.Errorf("%+v", r)
			}
			names, err := os.ReadDir(o.Dir)
			if err != nil || len(names) != 3 { // the lock and the list
				t.Errorf("%v, %v", names, err)
			}
			again, err := job.ExportModel(t.Context(), o)
			if err != nil || again.Rows != r.Rows || again.Tables[0].Earlier != r.Tables[0].Rows || again.Dir != r.Dir {
				t.Errorf("again: %+v, %v", again, err)
			}
			for _, path := range []string{o.Dir, r.Dir, fileURL(o.Dir), fileURL(r.Dir)} {
				if _, err := job.DescribeStoredModel(t.Context(), path, 1); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), path+", which has exports") {
					t.Errorf("the snapshot of %s: %v", path, err)
				}
			}
			if format != "native" {
				return
			}
			v, err := job.VerifyExport(t.Context(), r.Dir)
			if err != nil || len(v.Faults) > 0 || v.Rows != r.Rows || v.Job != "tables" || v.Snapshot != 1 {
				t.Errorf("%+v, %v", v, err)
			}
			e, err := native.Open(t.Context(), r.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			for i, tbl := range info.Tables {
				w := make([]float32, tbl.Dim())
				for id, p := range tables[tbl.Name] {
					if n, err := e.Find(i, []int64{id}, w, nil); n != 1 || err != nil || bitsOf(w) != p.bits {
						t.Fatalf("table %s: id %d: %d rows, %v, %v", tbl.Name, id, n, w, err)
					}
				}
			}
		})
	}
}

// TestModelsOnRunners: a runner that builds the graph again, as another process does, and loses an executor which it replaces while that one writes still, writes the files that this process
// writes, byte for byte, and leaves nothing beside them.
func TestModelsOnRunners(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	for _, format := range []string{"savedmodel", "onnx", "safetensors"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			o := job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: filepath.Join(t.TempDir(), "models"), RowNumbers: format == "onnx"}
			if format == "savedmodel" {
				o.WarmupFrom, o.WarmupExamples = cfg, 100
			}
			here, err := job.ExportModel(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			wrote := 0
			o.Dir, o.Runner, o.Recipes = filepath.Join(t.TempDir(), "models"), "prism", &job.Recipes{}
			o.Runners = map[string]job.Runner{"prism": func(ctx context.Context, s job.Submission) (sum pipeline.RunStats, err error) {
				var executors sync.WaitGroup
				errs, stats := make([]error, 3), make([]pipeline.RunStats, 3)
				execute := func(i int) {
					built, err := new(job.Recipes).Build(ctx, s.Recipe)
					if err != nil {
						errs[i] = err
						return
					}
					if got, want := built.Plan.Hash(), s.Plan.Hash(); got != want {
						errs[i] = fmt.Errorf("built again the plan has hash %s, not %s", got, want)
						return
					}
					all, err := local.Run(ctx, built.Plan, pipeline.RunOptions{Workers: 1})
					stats[i], errs[i] = pipeline.Sum(all...), err
				}
				for i := range 2 {
					executors.Go(func() { execute(i) })
				}
				executors.Wait()
				execute(2) // once it is there
				wrote++
				return stats[0], errors.Join(errs...)
			}}
			there, err := job.ExportModel(t.Context(), o)
			if err != nil || wrote != 1 || there.Rows != here.Rows || there.Dir != filepath.Join(o.Dir, "1") {
				t.Fatalf("%+v after %d runs, %v; here: %+v", there, wrote, err, here)
			}
			if want, got := filesIn(t, here.Dir), filesIn(t, there.Dir); len(want) < 2 || !maps.Equal(want, got) {
				t.Errorf("files and their digests are %q on the runner, and %q here", got, want)
			}
			names, err := os.ReadDir(o.Dir)
			if err != nil || len(names) != 3 { // the lock and the list
				t.Errorf("%v, %v", names, err)
			}
			failed := errors.New("no runner")
			o.Dir, o.Runners["prism"] = filepath.Join(t.TempDir(), "models"), func(context.Context, job.Submission) (pipeline.RunStats, error) { return pipeline.RunStats{}, failed }
			if r, err := job.ExportModel(t.Context(), o); !errors.Is(err, failed) {
				t.Errorf("a runner that fails: %+v, %v", r, err)
			}
			names, err = os.ReadDir(o.Dir)
			if err != nil || len(names) != 1 { // the lock
				t.Errorf("after a runner that failed: %v, %v", names, err)
			}
		})
	}
}

// filesIn are the digests of all files below a folder.
func filesIn(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	files := map[string][sha256.Size]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestExportsThatStay: of the exports in a folder the newest stay, with those that are exempt and the one that was written; what is none of them is let be.
func TestExportsThatStay(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	seen, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "models")
	for _, dir := range []string{"3", "4", "5", "6", "007", "x", ".9.removed"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, dir), 0o755), os.WriteFile(filepath.Join(root, dir, "_export.json"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "2"), 0o755); err != nil { // of somebody else
		t.Fatal(err)
	}
	o := job.ExportModelOptions{Snapshot: seen.Path, Format: "native", Dir: root, Keep: 2, Exempt: []uint64{3}}
	r, err := job.ExportModel(t.Context(), o)
	if err != nil || !slices.Equal(r.Removed, []string{filepath.Join(root, "4")}) {
		t.Errorf("%+v, %v", r, err)
	}
	entries, err := os.ReadDir(root)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".lock", "007", "1", "2", "3", "5", "6", "ExportSaverListenerState", "x"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("what stays is %v, want %v; %v", names, want, err)
	}
	var want strings.Builder
	for _, id := range []int{1, 3, 5, 6} {
		fmt.Fprintf(&want, "entries {\n  export_dir: \"%s/%d\"\n  global_step: %d\n}\n", root, id, id)
	}
	if list, err := os.ReadFile(filepath.Join(root, "ExportSaverListenerState")); err != nil || string(list) != want.String() {
		t.Errorf("the list is %s, want %s; %v", list, &want, err)
	}
}

// TestExportsOfAnotherJob: a folder whose newest export is of another job is refused before anything is written there, until it is said that the model is the same; an older export that servers will prefer is named.
func TestExportsOfAnotherJob(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	const prefers = "has the higher number"
	for name, c := range map[string]struct {
		number  int
		has     string // _export.json
		other   bool
		refused string
		notice  string
	}{
		"another job":           {number: 9, has: `{"job": "books", "created": "2200-01-01T00:00:00Z"}`, refused: `9 is an export of job "books", and snap-00000001 one of job "tables"`},
		"another job, earlier":  {number: 0, has: `{"job": "books"}`, refused: "say --other-job if it is the same model"},
		"by another name":       {number: 0, has: `{"job": "books"}`, other: true},
		"and with an older one": {number: 9, has: `{"job": "books", "created": "2001-01-01T00:00:00Z"}`, other: true, notice: prefers},
		"begun anew":            {number: 9, has: `{"job": "tables", "created": "2001-01-01T00:00:00Z"}`, notice: prefers},
		"of an older snapshot":  {number: 9, has: `{"job": "tables", "created": "2200-01-01T00:00:00Z"}`},
		"not known":             {number: 9, has: `{}`},
	} {
		for _, stored := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", stored ", stored), func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				dir := filepath.Join(root, fmt.Sprint(c.number))
				if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "_export.json"), []byte(c.has), 0o644)); err != nil {
					t.Fatal(err)
				}
				notices := ""
				o := job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: root, OtherJob: c.other, Notice: func(s string) { notices += s + "\n" }}
				if stored {
					o.Dir, o.Spool = fileURL(root), t.TempDir()
				}
				_, err := job.ExportModel(t.Context(), o)
				_, none := os.Stat(filepath.Join(root, "1"))
				switch {
				case c.refused == "" && (err != nil || none != nil || strings.Contains(notices, prefers) != (c.notice != "")):
					t.Errorf("%v, %v, %q; want one that %q", err, none, notices, c.notice)
				case c.refused != "" && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.refused) || none == nil):
					t.Errorf("%v, want one with %q; written: %v", err, c.refused, none == nil)
				}
				if o.OtherJob = false; c.other && c.number == 0 { // this job's is the newest now
					if _, err := job.ExportModel(t.Context(), o); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestDrainedExport ends in a part that nobody sees, and is continued.
func TestDrainedExport(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	for _, format := range job.ExportFormats() {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			drain := make(chan struct{})
			close(drain)
			o := job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: t.TempDir(), Drain: drain}
			r, err := job.ExportModel(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(o.Dir, "1")); r.Drained == (err == nil) {
				t.Errorf("drained: %v, and the export: %v", r.Drained, err)
			}
			o.Drain = nil
			if r, err = job.ExportModel(t.Context(), o); err != nil || r.Drained || r.Rows == 0 || r.Rows != r.Tables[0].Of+r.Tables[1].Of {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestDamageIsNotExported: a bit that is another one in the manifest's checksum, or anywhere in another file that an export is made of, is damage of that file, and leaves nothing that a server would find;
// when the file is as it was, the export is written, and has nothing of it. (A manifest is checked as what it says: the case of a letter in a key is nothing, another version is no damage.)
func TestDamageIsNotExported(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	_, info := inTables(t, filepath.Join(cfg.Dir, "snapshots", "snap-00000001"), false)
	copied := filepath.Join(t.TempDir(), filepath.Base(info.Path))
	if err := os.CopyFS(copied, os.DirFS(info.Path)); err != nil {
		t.Fatal(err)
	}
	names := []string{snapshot.ManifestName}
	for _, f := range info.Files {
		if f.Kind == snapshot.KindRows || f.Kind == snapshot.KindDense {
			names = append(names, f.Name)
		}
	}
	if len(names) < 4 {
		t.Fatalf("%q: no test", names)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the bits: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, of := range []struct {
		format      string
		rowsPerFile int64
	}{{"native", 50}, {"native", 0}, {"savedmodel", 0}} {
		format := of.format
		o := job.ExportModelOptions{Snapshot: copied, Format: format, Dir: filepath.Join(t.TempDir(), "models"), Workers: 2, RowsPerFile: of.rowsPerFile}
		for _, name := range names {
			path := filepath.Join(copied, name)
			sound, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			from, n := 0, len(sound)
			if name == snapshot.ManifestName {
				from, n = bytes.Index(sound, []byte(info.Checksum)), len(info.Checksum)
			}
			bit := 8*from + rng.IntN(8*n)
			damaged := bytes.Clone(sound)
			damaged[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(path, damaged, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := job.ExportModel(t.Context(), o); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(copied)) ||
				name != snapshot.ManifestName && !strings.Contains(err.Error(), name+": bytes 0 to "+strconv.Itoa(len(sound))+": checksum mismatch") {
				t.Errorf("%s of %s with another bit %d: %v", format, name, bit, err)
			}
			if seen, err := filepath.Glob(filepath.Join(o.Dir, "[0-9]*")); len(seen) > 0 || err != nil {
				t.Fatalf("%s of %s with another bit %d leaves %q, %v", format, name, bit, seen, err)
			}
			if err := os.WriteFile(path, sound, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := job.ExportModel(t.Context(), o)
		if err != nil || r.Rows != info.Rows() {
			t.Fatalf("%s when all is sound: %+v, %v", format, r, err)
		}
		anew := o
		anew.Dir = filepath.Join(t.TempDir(), "models")
		want, err := job.ExportModel(t.Context(), anew)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := contents(t, r.Dir), contents(t, want.Dir); !maps.Equal(got, want) {
			t.Errorf("%s behind damage has %q; one that met none %q, and not all of them are alike", format, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}
