//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps/psbench"
)

// TestMain makes the test binary be the command `monolith` of the scripts, with the fakes below behind it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"monolith": func() {
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, cli.Signals()...)
		app := &cli.App{Ops: fakes(), Version: "v0.0.0-test", Env: os.Environ(), Signals: signals, Stderr: noteDump{}}
		os.Exit(app.Run(context.Background(), os.Args[1:]))
	}})
}

// noteDump is standard error; once stacks were written to it there is a file named dumped, so that a script need not send the
// next signal before: signals that wait together are not received in the order they were sent in.
type noteDump struct{}

func (noteDump) Write(b []byte) (int, error) {
	n, err := os.Stderr.Write(b)
	if err == nil && strings.Contains(string(b), "goroutine ") {
		err = os.WriteFile("dumped", []byte("yes"), 0o644)
	}
	return n, err
}

// fakeSnapshots are a chain of two and a damaged one.
func fakeSnapshots(r job.Retention) []job.SnapshotEntry {
	at := time.Unix(1700000000, 0)
	return []job.SnapshotEntry{
		{Path: "d/snap-00000012", ID: 12, Kind: "incremental", Base: 11, Created: at, Rows: 12345, Bytes: 1300, Shards: 2, Examples: 640, Batches: 10, Kept: fmt.Sprintf("one of the newest %d", r.Keep), Note: "a note"},
		{Path: "d/snap-00000011", ID: 11, Kind: "whole", Created: at, Rows: 12000, Bytes: 5 << 20, Shards: 2, Kept: "base of snap-00000012"},
		{Path: "d/snap-00000010", ID: 10, Kind: "damaged", Kept: "damaged", Error: "manifest.json: checksum mismatch"},
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // so that the commands do not inherit that it is ignored, as nohup has it
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// Under the race detector every process otherwise sleeps a second before it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// waitfile FILE waits until a file has content: what runs in the background has come so far.
			"waitfile": func(ts *testscript.TestScript, _ bool, args []string) {
				for range 1000 {
					if info, err := os.Stat(ts.MkAbs(args[0])); err == nil && info.Size() > 0 {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
				ts.Fatalf("%s did not appear", args[0])
			},
			// signal NAME FILE sends a signal to the process whose id FILE holds; the scripts' own kill knows two only.
			"signal": func(ts *testscript.TestScript, _ bool, args []string) {
				pid, err := strconv.Atoi(ts.ReadFile(args[1]))
				ts.Check(err)
				ts.Check(syscall.Kill(pid, map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}[args[0]]))
			},
			// exitcode N COMMAND... runs a command that must end with that code.
			"exitcode": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if err != nil {
					got = fmt.Sprint(err)
				}
				want := "exit status " + args[0]
				if args[0] == "0" {
					want = "0"
				}
				if got != want {
					ts.Fatalf("got %q, want %q", got, want)
				}
			},
		},
	})
}

// fakes answers with fixed results; what a script wants else it says in FAKE.
func fakes() cli.Ops {
	fake := os.Getenv("FAKE")
	fail := func() error {
		switch fake {
		case "unavailable":
			return fmt.Errorf("kafkasource: brokers [localhost:1]: connection refused: %w", pipeline.ErrUnavailable)
		case "full":
			return fmt.Errorf("ps: snapshot in runs/x needs 4096 bytes: %w", syscall.ENOSPC)
		case "schema":
			return fmt.Errorf("no column %q: %w", "user", pipeline.ErrSchema)
		case "config":
			return fmt.Errorf("kafkasource: no topic %q: %w", "ratngs", pipeline.ErrConfig)
		case "data":
			return &pipeline.DataError{Source: "text", Split: "a.libfm", Position: 12, Reason: "malformed row"}
		}
		return nil
	}
	return cli.Ops{
		Translate: func(_ context.Context, c *job.Config) (json.RawMessage, error) {
			return json.RawMessage(`{"job":{"name":"` + c.Name + `"}}`), nil
		},
		Train: func(ctx context.Context, c *job.Config, o job.RunOptions) (*job.TrainResult, error) {
			if err := fail(); err != nil {
				return nil, err
			}
			r := &job.TrainResult{
				Examples: 200000, Steps: 391, ExamplesPerSecond: 12345.6, Seconds: 16.2, Epochs: c.Epochs,
				Metrics: job.Scores{"auc": 0.78125, "log_loss": math.NaN(), "progressive_auc": 0.8125}, ProgressiveExamples: 65536, Snapshot: filepath.Join(c.Dir, "snap-00000001"),
			}
			switch {
			case o.Resume == nil:
				o.Notice("continuing from " + filepath.Join(c.Dir, "snap-00000000"))
			case *o.Resume:
				return nil, fmt.Errorf("job: no snapshot in %s: %w", c.Dir, pipeline.ErrConfig)
			}
			o.Logger.Debug("a detail")
			o.Status(job.Status{Phase: "train", Examples: 10, Lag: -1})
			r.Drained = fake == "stopped" // at its runner
			if fake == "wait" || fake == "stubborn" {
				if err := mark("started"); err != nil {
					return nil, err
				}
				for drained := false; !drained; {
					select {
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					case <-o.TakeSnapshot:
						if err := mark("taken"); err != nil {
							return nil, err
						}
					case <-o.Drain:
						drained = true
					}
				}
				if fake == "stubborn" {
					if err := mark("draining"); err != nil {
						return nil, err
					}
					select {} // a broker that never answers
				}
				r.Drained = true
			}
			return r, nil
		},
		Eval: func(ctx context.Context, _ *job.Config, o job.EvalOptions) (*job.EvalResult, error) {
			if fake == "wait" {
				if err := mark("started"); err != nil {
					return nil, err
				}
				<-ctx.Done()
				return nil, fmt.Errorf("local: %w", ctx.Err())
			}
			return &job.EvalResult{Measured: job.Measured{Examples: 57722, Metrics: job.Scores{"auc": 0.75, "log_loss": 0.5}}, ExamplesPerSecond: 1e6, Snapshot: o.Snapshot}, nil
		},
		Predict: func(_ context.Context, c *job.Config, o job.PredictOptions) (*job.Predicted, error) {
			r := &job.Predicted{Snapshot: "s/" + o.Snapshot, To: c.Predict.To.Name(), Place: c.Predict.To.Name(), Output: "predictions/click/s", Fields: append(c.Predict.Fields, "prediction"), Rows: 30, Earlier: o.MaxExamples, ExamplesPerSecond: 1e6}
			if fake == "wait" {
				if err := mark("started"); err != nil {
					return nil, err
				}
				<-o.Drain
				r.Drained = true
			}
			if _, dir := c.Predict.To.Value().Place(); dir != "" {
				r.Place = filepath.Base(dir)
			}
			if s := c.Predict.Source; s != nil {
				r.BadRows = map[string]int64{fmt.Sprint(s.Name(), " ", s.FileList(), " ", c.Predict.Format, " ", *c.Predict.Header): 1}
			}
			return r, fail()
		},
		Tune: func(_ context.Context, c *job.Config, o job.TuneOptions) (*job.Tuned, error) {
			r := &job.Tuned{
				Job: c.Name, Dir: o.Dir, Metric: "log_loss", Lower: true, Shown: []string{"log_loss", "auc"}, On: "eval.holdout", Rows: []int64{20000, o.Rows},
				Best: 2, Gain: .0125, Noise: .001, Text: "version: 1\n# " + fmt.Sprint(o.Models, o.Metric, o.Seed, o.Restart, o.Time) + "\n", Trials: 7, Earlier: 3, Seconds: 61.5,
				Candidates: []job.TunedCandidate{
					{Number: 2, Changes: []job.TunedChange{{Key: "model.lr.bias_l2", Value: "0.1", Was: "0"}}, Rung: 2, Rows: 60000, Scores: job.Scores{"log_loss": .5, "auc": .75}, Seconds: 1.25},
					{Rung: 2, Rows: 60000, Scores: job.Scores{"log_loss": .5125, "auc": math.NaN()}, Seconds: 2},
					{Number: 1, Changes: []job.TunedChange{{Key: "train.batch", Value: "64", Was: "512"}}, Rung: 1, Rows: 20000, Lost: "no memory"},
					{Number: 3},
				},
				Notes: []string{"a note"}, BadRows: map[string]int64{"bad label": 2}, TimedOut: o.Trials == 2,
			}
			if fake == "wait" {
				if err := mark("started"); err != nil {
					return nil, err
				}
				<-o.Drain
				r.Drained = true
			}
			return r, fail()
		},
		Plan: func(*job.Config) (job.Plan, error) {
			if err := fail(); err != nil {
				return nil, err
			}
			return fakePlan{}, nil
		},
		Model: func(*job.Config) ([]byte, error) { return []byte("{\"version\": 1}\n"), fail() },
		Bench: map[string]func(context.Context, bench.Options) ([]bench.Result, error){
			"wire": func(_ context.Context, o bench.Options) ([]bench.Result, error) {
				if !o.Wants("wire lookup") {
					return nil, fail()
				}
				return []bench.Result{{
					Name: "wire lookup", Ours: float64(o.Rounds), Theirs: map[string]float64{"tcp framing": 2}, Ratio: float64(o.Rounds) / 2, Control: 1,
					Unit: "MB/cpu-s", Machine: "fake",
				}}, fail()
			},
		},
		BenchShards: func(_ context.Context, c *job.Config, _ job.Asking, o psbench.ShardsOptions) ([]psbench.ShardRates, error) {
			slow := psbench.ShardRates{
				Shard: 1, Addr: "b:7001", Ratio: 2.5, Lookup: psbench.Calls{Rate: 1234567, P50: .001, P99: .01, Max: .25}, Push: psbench.Calls{Rate: 7654, P50: .002, P99: .02, Max: .5},
				Rows: 12345, Bytes: 5 << 20, Room: 1 << 30, Need: -1, Disks: []psbench.SyncedDisk{{Of: "log", Dir: "/wal", Rate: 12.5e6, P50: .003, P99: .03, Max: .3}},
			}
			if o.Slowest > 0 {
				slow.Findings = []string{fmt.Sprint("too slow for ", o.Slowest)}
			}
			return []psbench.ShardRates{slow, {Addr: "a:7000", Ratio: .4}}, fail()
		},
		Need: func(_ context.Context, _ *job.Config, o job.NeedOptions) (*job.MemoryNeed, error) {
			n := &job.MemoryNeed{Unknown: true, Shards: 2, Remote: true, Tables: []job.TableNeed{{Name: "embedding", RowBytes: 164, Rows: -1}}}
			if o.Sample > 0 {
				n.Unknown, n.Bytes, n.Process, n.Limit, n.Warning = false, 2<<30, 1<<30, 1<<29, "it does not fit"
				n.Tables[0] = job.TableNeed{Name: "embedding", RowBytes: 164, Rows: o.IDs["user"], Bytes: 2 << 30, Basis: fmt.Sprint("a sample of ", o.Sample, " for ", o.Examples)}
			}
			if o.Sample == 8 {
				n.Sampled, n.BadRows, n.BadExamples, n.Remarks = 6, map[string]int64{"bad label": 2}, []string{"text/a position 7: bad label"}, []string{"id 0 ends lists"}
			}
			return n, fail()
		},
		Check: func(context.Context, *job.Config) ([]job.Finding, error) {
			if fake == "finding" {
				return []job.Finding{{Path: "model.deepfm", Where: "job.yaml:4:8", Message: "has no dense features"}}, nil
			}
			return nil, fail()
		},
		InspectSource: func(_ context.Context, c *job.Config, o job.InspectOptions) (*job.SourceInfo, error) {
			if fake == "parsed" {
				return &job.SourceInfo{
					Source: c.Source.Name(), Bounded: true, Format: "csv", Read: 3, Splits: []job.SplitInfo{{Name: "a", End: 120, Read: 3}},
					Features: []job.FeatureInfo{
						{Name: "user", Column: "user", Kind: "sparse", Slot: 1, Rows: 1, Share: .5, MaxValues: 2, Distinct: 2, Examples: []any{"1:7", "1:8"}},
						{Name: "label", Column: "__label__", Kind: "label", Rows: 2, Share: 1, MaxValues: 1, Distinct: 2, Numbers: &job.NumbersInfo{Max: 1, Mean: .5}, Examples: []any{1., 0.}},
					},
					Rows: []job.RowInfo{
						{Split: "a", Features: map[string]any{"user": []any{"1:7", "1:8"}, "__label__": 1.}},
						{Split: "a", Position: 40, Record: map[string]any{"user": "x"}},
					},
					BadRows: map[string]int64{"wrong type": 1}, BadExamples: []string{"text/a position 40: wrong type"},
				}, nil
			}
			return &job.SourceInfo{
				Source: c.Source.Name(), Bounded: c.Source.Bounded(), Format: "jsonl", Read: 2000,
				Splits: []job.SplitInfo{{Name: "a", End: 120, Read: 1500}, {Name: "b", End: -1, Read: 500}},
				Columns: []job.ColumnInfo{
					{Name: "user", Type: "list of numbers", Rows: 1999, Share: .9995, Distinct: 1000, Numbers: &job.NumbersInfo{Min: 1, Max: 3, Mean: 2}, Examples: []any{int64(1), int64(2)}},
					{Name: "title", Type: "text", Rows: 0, Examples: []any{}},
				},
				Rows: []job.RowInfo{
					{Split: "a", Record: map[string]any{"user": []any{int64(1), int64(2)}, "title": nil}},
					{Split: "b", Position: 7, Record: map[string]any{"user": int64(3), "title": "a long text that goes on and on and on and on and on for more than sixty letters"}},
				}[:min(2, o.Rows)],
				Parse: "parse:\n  format: jsonl\n", Notes: []string{fmt.Sprintf("time was over after %v", o.Timeout)},
			}, nil
		},
		Propose: func(_ context.Context, target string, o job.ProposeOptions) (*job.Proposed, error) {
			if o.Label == "none" {
				return nil, fmt.Errorf("job: which column of %s is to be predicted?: %w", target, pipeline.ErrConfig)
			}
			return &job.Proposed{Name: "x", Job: "version: 1\nname: x\n", Read: 1, Notes: []string{"a note"}}, nil
		},
		Import: func(_ context.Context, c *job.Config, o job.ImportOptions) (*job.Imported, error) {
			r := &job.Imported{
				From: o.From, Step: 1200, Entries: 310, Rows: 300, Seconds: .5,
				Tables: []job.ImportedTable{{
					Name: "embedding", Rows: 300, From: []job.Counted{{What: "a", Rows: 200}, {What: "b", Rows: 100}}, Twice: 2,
					Restarted: []job.Counted{{What: "state of vec: the checkpoint has no state of it", Rows: 7}},
				}},
				Skipped: []job.Counted{{What: "slot 9 is of no sparse feature of the job", Rows: 8}},
				Filters: []job.ImportedFilter{{Name: "hash_filter_0", Splits: 7, Counters: 12}}, Others: []string{"notes.txt"},
				Dense: []string{"w"}, DenseInitial: []string{"b"},
			}
			if !o.DryRun {
				r.Snapshot = filepath.Join(c.Dir, o.To, fmt.Sprint(o.Memory))
			}
			if o.Mapping != nil {
				r.Step = int64(len(o.Mapping.Tables))
			}
			return r, fail()
		},
		Export: func(_ context.Context, o job.ExportOptions) (*job.Exported, error) {
			return &job.Exported{
				Snapshot: o.Snapshot, Assets: fmt.Sprintf("%s/model.ckpt-%d.assets", o.To, o.Step), Rows: 300, Bytes: 4096, Seconds: .5, Dense: []string{"w"},
				Tables: []job.ExportedTable{{Name: "embedding", As: fmt.Sprint(o.Names, o.Multi, o.Serving), Files: max(o.Shards, 1) * max(o.Servers, 1), Rows: 300, Restarted: []string{"vec: upstream has no rule like x"}}},
			}, fail()
		},
		ExportModel: func(_ context.Context, o job.ExportModelOptions) (*job.ExportedModel, error) {
			r := &job.ExportedModel{Snapshot: o.Snapshot, Dir: o.Dir + "/12", Format: o.Format, Rows: 900, Seconds: .5, Tables: []job.TableRows{{Name: "embedding", Dir: o.Dir + "/12/embedding", Rows: 900, Of: 1000, Earlier: 400}}}
			if abs, err := filepath.Abs(o.Dir); err == nil && o.Spool == "" { // what the operation itself works with
				r.Dir, r.Tables[0].Dir = abs+"/12", abs+"/12/embedding"
			}
			if o.Spool != "" {
				r.Already, r.Dir = true, o.Dir+"/12 by "+o.Spool
			}
			if o.Keep > 0 {
				r.Removed = []string{fmt.Sprint(o.Dir, "/ of ", o.Keep, " ", o.Exempt, " ", o.Slots, " ", o.MinCount)}
			}
			if fake == "wait" {
				if err := mark("started"); err != nil {
					return nil, err
				}
				<-o.Drain
				r.Drained = true
			}
			return r, fail()
		},
		ServeModels: func(_ context.Context, o job.ServeModelsOptions) error {
			if o.Cache.Dir != "" {
				o.HTTP = fmt.Sprint(o.Cache)
			}
			text := fmt.Sprint(o.Exports, " ", o.HTTP, " ", o.Policy.Latest, " ", o.TLS.Cert, " ", o.Limits.MaxExamples, " ", o.Reload)
			for i, j := range o.Jobs {
				cfg, err := j.Load()
				if err != nil {
					return err
				}
				if text += " " + j.Name + "=" + cfg.Name; i == len(o.Jobs)-1 {
					text += fmt.Sprint(" ", o.Every)
				}
			}
			if o.Shard != nil {
				text += " shard " + o.Shard.String()
			}
			if r := o.Rows; len(r.Addrs) > 0 {
				text += fmt.Sprint(" rows ", r.Addrs, " ", r.CacheBytes, " ", r.TLS.CA, " ", r.TokenFile)
			}
			if o.Pushes.Accept {
				text += fmt.Sprint(" pushes ", o.Pushes)
			}
			o.Ready(text, o.GRPC)
			return fail()
		},
		FetchExport: func(_ context.Context, o job.FetchExportOptions) (*job.FetchedExport, error) {
			return &job.FetchedExport{URL: o.URL + "/12", Dir: fmt.Sprint(o.Cache.Dir, "/", o.Cache.MaxBytes)}, fail()
		},
		VerifyExport: func(_ context.Context, dir string) (*job.VerifiedExport, error) {
			r := &job.VerifiedExport{Dir: dir, Job: "click", Snapshot: 12, Rows: 1000, Faults: []string{}}
			if dir == "damaged" {
				r.Faults = append(r.Faults, "embedding/x.slab: checksum")
			}
			return r, fail()
		},
		Models: cli.ModelOps{
			List: job.ListModels, Measure: func(_ context.Context, model string, features int, _ bench.Options) (bench.Result, error) {
				return bench.Result{Name: model, Ours: 1000 * float64(features), Control: .96}, fail()
			},
			Insight: func(_ context.Context, _ *job.Config, o job.InsightOptions) (*job.InsightResult, error) {
				g := .25
				return &job.InsightResult{
					Examples: o.MaxExamples, Seconds: 2, Metrics: job.Scores{"auc": .75, "log_loss": .5}, Snapshot: "runs/click/" + o.Snapshot,
					Features: []job.FeatureInsight{
						{Name: "user", Table: "embedding", Share: .995, Length: 1.5, Gradient: &g, Changes: job.Scores{"auc": -.125, "log_loss": .0625}},
						{Name: "price", Share: 1, Length: 3, Changes: job.Scores{"auc": 0, "log_loss": math.NaN()}},
					},
					Layers: []job.LayerInsight{{Name: "deep.0.weight", Shape: []int{40, 16}, Gradient: &g, Columns: 16, Idle: 2}},
				}, fail()
			},
			Diff: func(_ context.Context, a, b string) (*job.SnapshotDiff, error) {
				from, to := int64(5), int64(9)
				return &job.SnapshotDiff{
					A: a, B: b, Tables: []job.TableDiff{{Name: "embedding", Added: 1000, Removed: 2, Changed: 3, Same: 4}},
					Tensors:   []job.TensorDiff{{Name: "w", Weights: .25}, {Name: "b", Only: "b"}, {Name: "c"}},
					Positions: []job.PositionDiff{{Source: "ratings", Split: "ratings-0", A: &from, B: &to, Examples: 4}, {Source: "ratings", Split: "ratings-1", B: &to, Examples: 9}},
					State:     []string{"trace"},
				}, fail()
			},
		},
		Snapshots: cli.SnapshotOps{
			List: func(_ context.Context, path string, r job.Retention) (*job.SnapshotList, error) {
				return &job.SnapshotList{Dir: path, Snapshots: fakeSnapshots(r)}, fail()
			},
			Verify: func(_ context.Context, path string) ([]job.SnapshotCheck, error) {
				out := []job.SnapshotCheck{{Path: path + "/snap-00000012", Reads: []int64{12, 11}, Bytes: 5 << 20}}
				if path == "damaged" {
					out = append(out, job.SnapshotCheck{Path: path + "/snap-00000011", Faults: []string{"rows-0000-0000.arrow: checksum mismatch"}})
				}
				return out, fail()
			},
			Prune: func(_ context.Context, path string, r job.Retention, remove bool) (*job.SnapshotsPruned, error) {
				return &job.SnapshotsPruned{Dir: path, Gone: []string{fmt.Sprint(path, "/snap of ", r.Keep, " ", r.For, " ", r.Exempt)}, Removed: remove, Kept: fakeSnapshots(r)}, fail()
			},
			Fetch: func(_ context.Context, o job.FetchOptions) (*job.SnapshotEntry, error) {
				e := fakeSnapshots(job.Retention{})[0]
				e.Path = fmt.Sprint(o.To, "/snap ", o.ID, " of ", o.URL)
				return &e, fail()
			},
			FetchJob: func(_ context.Context, c *job.Config, o job.FetchOptions) (*job.SnapshotEntry, error) {
				e := fakeSnapshots(job.Retention{})[0]
				e.Path = fmt.Sprint(c.Snapshot.Upload, " ", o.ID)
				return &e, fail()
			},
			Take: func(_ context.Context, c *job.Config, o job.TakeOptions) (*job.SnapshotTaken, error) {
				e := fakeSnapshots(job.Retention{})[0]
				e.Note = fmt.Sprint(o.Note, o.Pin)
				return &job.SnapshotTaken{SnapshotEntry: e, Took: 1.5, Stall: .0125}, fail()
			},
		},
		Scale: func(_ context.Context, c *job.Config, o job.ScaleOptions) (*job.Scaled, error) {
			to := o.To
			if to == nil {
				to = c.PS.Addresses
			}
			return &job.Scaled{Before: 2, Shards: len(to), Addresses: to, Snapshot: "runs/job/snapshots/snap-00000012", Rows: 12345, Again: 1, Took: 1.5, Pause: .25}, fail()
		},
		PS: cli.RowOps{
			LookUp: func(_ context.Context, _ *job.Config, o job.LookUpOptions) (*job.LookedUp, error) {
				return fakeEntries("", o.Table, o.IDs), fail()
			},
			LookUpStored: func(_ context.Context, path, table string, ids []int64) (*job.LookedUp, error) {
				return fakeEntries(path, table, ids), fail()
			},
			Edit: func(_ context.Context, _ *job.Config, o job.EditOptions) (*job.Edited, error) {
				n := int64(len(o.IDs))
				if o.From != nil {
					b, err := io.ReadAll(o.From)
					if err != nil {
						return nil, err
					}
					n = int64(bytes.Count(b, []byte("\n")))
				}
				if files := slices.Concat(o.Parquet, o.Arrow); len(files) > 0 {
					n, o.Request = 2, strings.Join(files, " ")
				}
				if o.Request == "" {
					o.Request = "fresh"
				}
				e := &job.Edited{Table: o.Table, Operation: o.Op.String(), Request: o.Request, IDs: n, Existed: 1, DryRun: o.DryRun}
				if !o.DryRun {
					o.Begun(o.Request)
					e.Edited = n
				}
				return e, fail()
			},
			Slots: func(_ context.Context, c *job.Config, _ job.Asking) (*job.RunningSlots, error) {
				return &job.RunningSlots{Job: c.Name, Rows: 345, Slots: []job.SlotInfo{{Table: "item", Slot: 2, Rows: 345, Share: 1, Bytes: 345 * 184, Occurrences: 700, Timeless: 345}}, Shards: []job.RunningShard{
					{Address: "a:1", Rows: 345, Bytes: 3 << 20, Dense: 2 << 10}, {Address: "b:2", Failed: "is away"},
				}}, fail()
			},
			Changes: func(_ context.Context, _ *job.Config, o job.ChangesOptions) error {
				if o.Leave {
					return fail()
				}
				e := fakeEntries("", "item", []int64{7}).Entries[0]
				return errors.Join(o.Give(&job.Change{Entry: &e, All: true}), o.Give(&job.Change{Entry: &job.Entry{Table: "item", ID: 8}, Removed: true}),
					o.Give(&job.Change{Whole: true}), o.Flush(), fail())
			},
			Push: func(_ context.Context, _ *job.Config, o job.PushOptions) (*job.Pushed, error) {
				signature := fmt.Sprint(o.Raw, " ", o.Tables, " ", o.Follow, " ", o.Every, " ", o.TLS != nil, " ", o.TokenFile)
				return &job.Pushed{To: o.To, Model: o.Model, Signature: signature, Rows: 12345, Removed: 6, Requests: 7}, fail()
			},
		},
		InspectSlots: func(_ context.Context, path string, o job.SlotOptions) (*job.SnapshotSlots, error) {
			newest := time.Unix(1700000000, 0)
			s := &job.SnapshotSlots{Path: path, ID: 3, Created: time.Unix(1700000100, 0), Rows: 12345}
			switch {
			case fake == "empty":
				return s, nil
			case fake != "timeless":
				s.Newest = &newest
			}
			if (o.Progress == nil) != slices.Contains(os.Args, "--json") {
				return nil, errors.New("progress is not for people")
			}
			s.Slots = []job.SlotInfo{
				{Table: "embedding", Slot: 1, Features: []string{"user", "friend"}, Rows: 12000, Share: 12000. / 12345, Bytes: 12000 * 184, Occurrences: math.MaxUint64, Once: 9000, MeanNorm: .123456, Ages: &job.SlotAges{P50: 33, P90: 7200, Max: 30 * 86400}, Timeless: 1, Waiting: 40000},
				{Table: "embedding", Slot: 2, Rows: 345, Share: 345. / 12345, Bytes: 345 * 184, Occurrences: 700, Timeless: 345},
				{Table: "people", Slot: 9, Waiting: 3},
			}
			if fake == "timeless" {
				s.Slots = s.Slots[1:2]
			}
			return s, fail()
		},
		InspectSnapshot: func(_ context.Context, path string) (*job.SnapshotInfo, error) {
			return &job.SnapshotInfo{
				Path: path, ID: 3, Created: time.Unix(1700000000, 0), Digest: "d1935e", Rows: 12345,
				Model:     "deepfm",
				Heads:     []job.SnapshotHead{{Name: "click", Loss: "cross_entropy", Label: "rating >= 4", Weight: 1}, {Name: "minutes", Loss: "poisson", Label: "minutes", Mask: "click", Weight: .1}},
				Features:  []job.SnapshotFeature{{Name: "user", Kind: "sparse", Column: "user_id", Slot: 1, Table: "embedding"}, {Name: "vector", Kind: "dense", Column: "vector", Dim: 4}, {Name: "vector_missing", Kind: "dense", Dim: 1}},
				Tables:    []job.TableInfo{{Name: "embedding", Rows: 12345, Dim: 17, Segments: []job.SegmentInfo{{Name: "bias", Dim: 1}, {Name: "vec", Dim: 16}}}},
				Dense:     []job.TensorInfo{{Name: "w", Shape: []int64{20, 60}}, {Name: "b", Shape: []int64{60}}},
				Positions: map[string]map[string]position.Progress{"ratings": {"ratings-0": {Position: 99, Rows: 98, Batches: 2}, "ratings-1": {Position: position.AtEpoch(2, 7), Rows: 21, Batches: 2}}},
			}, nil
		},
		Demo: func(_ context.Context, o job.DemoOptions) (*job.DemoResult, error) {
			if o.Model == "lr" {
				return nil, errors.New("boom")
			}
			var resumed int64
			if o.Dir == "begun" {
				resumed = 600
				o.Notice("the demo in begun continues from 600 of 1000 examples")
			}
			if fake == "wait" {
				if err := mark("started"); err != nil {
					return nil, err
				}
				<-o.Drain
			}
			return &job.DemoResult{
				Drained:  fake == "wait",
				Examples: o.Examples, ResumedFrom: resumed, ExamplesPerSecond: 20000, Seconds: 10, Rows: 4321, Snapshot: filepath.Join(o.Dir, "snap-00000001"),
				Progressive: job.ProgressiveResult{AUC: 0.77, LogLoss: 0.5},
				HeldOut:     job.HeldOutResult{AUC: 0.78, FrozenAUC: 0.75, BestAUC: 0.79},
				OverTime:    []job.DemoInterval{{Examples: o.Examples, ExamplesPerSecond: 20000, AUC: 0.77, LogLoss: math.NaN(), BestAUC: 0.8}},
				Dir:         o.Dir,
			}, nil
		},
	}
}

// mark writes the process's id to a file, which shows a script that it has come so far.
func mark(file string) error { return os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o600) }

type fakePlan struct{}

func (fakePlan) Text() string    { return "source ─> parse ─> push\n" }
func (fakePlan) DOT() string     { return "digraph {}" }
func (fakePlan) Mermaid() string { return "flowchart LR" }
func (fakePlan) JSON() string    { return `{"segments":[]}` }

func TestExampleJobLoads(t *testing.T) {
	t.Parallel()
	if _, err := job.Decode([]byte(cli.ExampleJob), "example.yaml", job.LoadOptions{}); err != nil {
		t.Error(err)
	}
}

// TestHelp: every command has a short line, a long text and examples, and begins its line with a capital.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range cli.Command().Commands() {
		if c.Short == "" || c.Name() != "version" && c.Long == "" {
			t.Errorf("%s has no help", c.Name())
		}
		if c.Runnable() && c.Example == "" {
			t.Errorf("%s has no examples", c.Name())
		}
	}
}

// TestExit: the one table of errors and codes.
func TestExit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		exit int
		code string
	}{
		{errors.New("x"), 1, "failed"},
		{&pipeline.DataError{Reason: "x"}, 1, "failed"},
		{&pipeline.GapError{}, 1, "failed"},
		{fmt.Errorf("a: %w", pipeline.ErrFenced), 1, "failed"},
		{fmt.Errorf("a: %w", pipeline.ErrConfig), 2, "config"},
		{fmt.Errorf("a: %w", pipeline.ErrSchema), 2, "schema"},
		{fmt.Errorf("a: %w", &job.ConfigError{}), 2, "config"},
		{fmt.Errorf("a: %w", pipeline.ErrUnavailable), 3, "unavailable"},
		{fmt.Errorf("a: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}), 3, "unavailable"},
		{fmt.Errorf("a: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}), 3, "unavailable"},
		{fmt.Errorf("a: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}), 3, "unavailable"},
		{fmt.Errorf("a: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.ENFILE}), 3, "unavailable"},
		{errors.Join(pipeline.ErrUnavailable, pipeline.ErrConfig), 2, "config"},
	} {
		if exit, f := cli.Exit(tt.err); exit != tt.exit || f.Code != tt.code {
			t.Errorf("%v: %d %q, want %d %q", tt.err, exit, f.Code, tt.exit, tt.code)
		}
	}
}

// endless is a terminal on which nobody types: it is read, and nothing comes until it is closed.
type endless struct{ read, closed chan struct{} }

func (e endless) Read([]byte) (int, error) {
	close(e.read)
	<-e.closed
	return 0, io.EOF
}

// TestSignalWhileStandardInputIsRead: the first one ends a command that waits for what nobody types.
func TestSignalWhileStandardInputIsRead(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"check", "train", "serve", "inspect"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			in, signals := endless{make(chan struct{}), make(chan struct{})}, make(chan os.Signal, 1)
			defer close(in.closed)
			go func() {
				<-in.read
				signals <- syscall.SIGTERM
			}()
			app := &cli.App{Ops: fakes(), Stdin: in, Stdout: io.Discard, Stderr: io.Discard, Signals: signals}
			if code := app.Run(t.Context(), []string{command, "-"}); code != 143 {
				t.Errorf("exit code %d, want 143", code)
			}
		})
	}
}

// TestExportOfAJobFromStandardInput: who needs the job twice, for its snapshot and for its source, gets it twice.
func TestExportOfAJobFromStandardInput(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nname: click\nsource: {synthetic: {examples: 100}}\nparse:\n  features: [{name: user, slot: 1}]\n  label: click\nmodel: {lr: {}}\n"
	var got job.ExportModelOptions
	var stderr bytes.Buffer
	app := &cli.App{Stdin: strings.NewReader(text), Stdout: io.Discard, Stderr: &stderr, Ops: cli.Ops{
		ExportModel: func(_ context.Context, o job.ExportModelOptions) (*job.ExportedModel, error) {
			got = o
			return &job.ExportedModel{}, nil
		},
	}}
	if code := app.Run(t.Context(), []string{"export", "-", "--format", "native", "--dir", "models", "--warmup-from", "source"}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if got.Snapshot != "runs/click" || got.Best || got.WarmupFrom == nil || got.WarmupFrom.Name != "click" {
		t.Errorf("export of %q with requests of %+v", got.Snapshot, got.WarmupFrom)
	}
}

// TestRepeatedSignal: who sends a signal twice in a moment, as timeout(1) does, has said it once; a second later, or
// another signal, is another word.
func TestRepeatedSignal(t *testing.T) {
	t.Parallel()
	type event struct {
		after time.Duration
		sig   syscall.Signal
	}
	for name, tt := range map[string]struct {
		events []event
		code   int
		at     time.Duration
	}{
		"once":                          {[]event{{0, syscall.SIGTERM}}, 0, 5 * time.Second},
		"twice at once":                 {[]event{{0, syscall.SIGTERM}, {0, syscall.SIGTERM}}, 0, 5 * time.Second},
		"all the time for a second":     {[]event{{0, syscall.SIGINT}, {400 * time.Millisecond, syscall.SIGINT}, {400 * time.Millisecond, syscall.SIGINT}}, 0, 5 * time.Second},
		"all the time for more":         {[]event{{0, syscall.SIGINT}, {700 * time.Millisecond, syscall.SIGINT}, {400 * time.Millisecond, syscall.SIGINT}}, 130, 1100 * time.Millisecond},
		"again a second later":          {[]event{{0, syscall.SIGTERM}, {time.Second, syscall.SIGTERM}}, 143, time.Second},
		"another at once":               {[]event{{0, syscall.SIGINT}, {time.Millisecond, syscall.SIGTERM}}, 143, time.Millisecond},
		"a dump of stacks between them": {[]event{{0, syscall.SIGINT}, {0, syscall.SIGUSR1}, {0, syscall.SIGINT}}, 0, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "job.yaml")
				if err := os.WriteFile(file, []byte("version: 1\nsource: {synthetic: {examples: 0}}\nmodel: lr\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				signals, started := make(chan os.Signal, 4), make(chan struct{})
				ops := cli.Ops{Train: func(ctx context.Context, _ *job.Config, o job.RunOptions) (*job.TrainResult, error) {
					close(started)
					select {
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					case <-o.Drain:
					}
					select { // the last snapshot
					case <-ctx.Done():
					case <-time.After(5 * time.Second):
					}
					return &job.TrainResult{Drained: true}, nil
				}}
				app := &cli.App{Ops: ops, Stdout: io.Discard, Stderr: io.Discard, Signals: signals}
				go func() {
					<-started
					for _, e := range tt.events {
						time.Sleep(e.after)
						signals <- e.sig
					}
				}()
				began := time.Now()
				if code := app.Run(t.Context(), []string{"train", file}); code != tt.code || time.Since(began) != tt.at {
					t.Errorf("code %d after %v, want %d after %v", code, time.Since(began), tt.code, tt.at)
				}
			})
		})
	}
}

// fakeEntries has a row for each id but 404.
func fakeEntries(path, table string, ids []int64) *job.LookedUp {
	at := time.Unix(1700000000, 0).UTC()
	out := &job.LookedUp{Snapshot: path, Missing: []int64{}}
	for _, id := range ids {
		if id == 404 {
			out.Missing = append(out.Missing, id)
			continue
		}
		out.Entries = append(out.Entries, job.Entry{
			Table: table, ID: id, Slot: int(id >> 48), Occurrences: 3, Updated: &at, Weights: []float32{.5, -1, 2},
			Segments: []job.EntrySegment{{Name: "bias", Dim: 1, Optimizer: "sgd"}, {Name: "vec", Dim: 2, Optimizer: "adagrad", State: []float32{.25, 4}}},
		})
	}
	return out
}
