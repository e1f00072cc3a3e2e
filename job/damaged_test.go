package job_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// damagedRun is a job with three snapshots: 1 and 2 are whole, 3 adds to 2.
type damagedRun struct {
	dir  string
	text string
}

func newDamagedRun(t *testing.T) *damagedRun {
	t.Helper()
	d := &damagedRun{dir: t.TempDir()}
	var lines bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&lines, "{\"y\": %d, \"user\": %d, \"item\": %d}\n", i%3%2, i%997, i*7%101)
	}
	data := filepath.Join(d.dir, "a.jsonl")
	if err := os.WriteFile(data, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	d.text = fmt.Sprintf(`
version: 1
name: damaged
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: user, slot: 1}, {name: item, slot: 2}], label: y}
model: {fm: {dim: 4}}
train: {batch: 50}
eval: {source: {text: {files: [%[1]q]}}}
snapshot: {keep: 9}
`, data)
	for _, set := range [][]string{
		{"train.max_examples=2000"},
		{"train.max_examples=2500"},
		{"train.max_examples=2600", "snapshot.incremental=9"},
	} {
		if _, err := job.Run(t.Context(), d.config(t, filepath.Join(d.dir, "run"), set...), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := snapshot.List(filepath.Join(d.dir, "run", "snapshots"))
	if err != nil || len(entries) != 3 || entries[0].Err != nil || entries[0].Info.Base == nil || entries[1].Info.Base != nil {
		t.Fatalf("%+v, %v: want three snapshots, the last of which adds to the one before", entries, err)
	}
	return d
}

func (d *damagedRun) config(t *testing.T, dir string, set ...string) *job.Config {
	t.Helper()
	cfg, err := job.Decode([]byte(d.text), "damaged.yaml", job.LoadOptions{Set: append([]string{"dir=" + dir}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// openers are what reads the newest good snapshot of a job, and return which it was.
func (d *damagedRun) openers(answers map[string]string) map[string]func(t *testing.T, dir string, log *slog.Logger) (string, error) {
	return map[string]func(t *testing.T, dir string, log *slog.Logger) (string, error){
		"inspect": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.InspectSnapshot(t.Context(), dir)
			return pathOf(r, err, func() string { return r.Path })
		},
		"inspect --slots": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.InspectSlots(t.Context(), dir, job.SlotOptions{})
			return pathOf(r, err, func() string { return r.Path })
		},
		"eval": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.Evaluate(t.Context(), d.config(t, dir), job.EvalOptions{Options: job.RunOptions{Logger: log}})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"eval of the best": func(t *testing.T, dir string, log *slog.Logger) (string, error) { // none is marked: the newest
			r, err := job.Evaluate(t.Context(), d.config(t, dir, "train.early_stop={metric: auc}"), job.EvalOptions{Options: job.RunOptions{Logger: log}})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"insight": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.Insight(t.Context(), d.config(t, dir), job.InsightOptions{Options: job.RunOptions{Logger: log}, MaxExamples: 100})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"predict": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.Predict(t.Context(), d.config(t, dir, fmt.Sprintf("predict.to={jsonl: %q}", t.TempDir())), job.PredictOptions{Options: job.RunOptions{Logger: log}})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"predict without a job file": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			cfg, err := job.Alone(t.Context(), dir, filepath.Join(d.dir, "a.jsonl"), job.LoadOptions{Set: []string{fmt.Sprintf("predict.to={jsonl: %q}", t.TempDir())}})
			if err != nil {
				return "", err
			}
			r, err := job.Predict(t.Context(), cfg, job.PredictOptions{Options: job.RunOptions{Logger: log}, Alone: dir})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"export": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: dir, Format: "native", Dir: t.TempDir(), Logger: log})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"export of a format in one piece": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: dir, Format: "onnx", Dir: t.TempDir(), Logger: log})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"snapshot export": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.Export(t.Context(), job.ExportOptions{Snapshot: dir, To: filepath.Join(t.TempDir(), "to")})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"model describe": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.DescribeStoredModel(t.Context(), dir, 1)
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"model nearest": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.Nearest(t.Context(), dir, job.NearestOptions{Table: "embedding", ID: 1<<48 + 1, K: 3})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"model diff": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.DiffSnapshots(t.Context(), dir, dir)
			return pathOf(r, err, func() string { return r.A })
		},
		"ps lookup": func(t *testing.T, dir string, _ *slog.Logger) (string, error) {
			r, err := job.LookUpStored(t.Context(), dir, "embedding", []int64{1<<48 + 1})
			return pathOf(r, err, func() string { return r.Snapshot })
		},
		"train": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.Run(t.Context(), d.config(t, dir), job.RunOptions{Logger: log})
			return pathOf(r, err, func() string { return r.ResumedFrom })
		},
		"restore.from": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			r, err := job.Run(t.Context(), d.config(t, filepath.Join(t.TempDir(), "another"), "restore.from="+dir, "train.max_examples=50"), job.RunOptions{Logger: log})
			if err != nil {
				return "", err
			}
			info, err := snapshot.ReadInfo(r.ResumedFrom)
			return pathOf(info, err, func() string { return strings.TrimPrefix(info.Note, "made of ") })
		},
		"serve": func(t *testing.T, dir string, log *slog.Logger) (string, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a, end := serveModels(ctx, t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Name: "exported", Load: func() (*job.Config, error) { return d.config(t, dir), nil }}}, Poll: time.Millisecond, Logger: log})
			defer end()
			for ok := false; !ok; time.Sleep(time.Millisecond) {
				if _, ok = a.freshness("exported"); ctx.Err() != nil {
					return "", errors.New("nothing is served")
				}
			}
			answer := a.predict("exported")
			for path, want := range answers {
				if answer == want {
					return path, nil
				}
			}
			return "", fmt.Errorf("it answers as no snapshot does: %s", answer)
		},
	}
}

// pathOf is the path in a result, or an error.
func pathOf[T any](_ T, err error, path func() string) (string, error) {
	if err != nil {
		return "", err
	}
	return path(), nil
}

// damages are what happens to a file.
var damages = map[string]func(t *testing.T, path string){
	"empty":   func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { return nil }) },
	"cut":     func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { return b[:len(b)-8] }) },
	"flipped": func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }) },
	"missing": func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	},
}

func edit(t *testing.T, path string, with func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, with(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// damagedCases are which file of which snapshot is damaged, and the number of the one that is to be read then.
var damagedCases = []struct {
	id   uint64
	file string
	want uint64
	sole []string // the damages that it is tried with; empty: all
}{
	{3, "rows-0000-0000.arrow", 2, nil},
	{3, "dense-0000.arrow", 2, nil},
	{3, snapshot.ManifestName, 2, nil}, // a missing one is a snapshot that was never finished
	{2, "rows-0000-0000.arrow", 1, nil},
	{2, "dense-0000.arrow", 3, []string{"missing", "flipped"}}, // what adds to it has its own
}

// TestDamagedSnapshots: whatever is damaged of the newest snapshot, or of its base, everything that reads snapshots uses the one before.
func TestDamagedSnapshots(t *testing.T) {
	t.Parallel()
	d := newDamagedRun(t)
	whole := filepath.Join(d.dir, "run")
	answers := map[string]string{}
	for id := range uint64(3) {
		answers[snapshot.Path("snapshots", id+1)] = exported(t.Context(), t, snapshot.Path(filepath.Join(whole, "snapshots"), id+1))
	}
	for _, c := range damagedCases {
		for how, damage := range damages {
			if c.sole != nil && !strings.Contains(strings.Join(c.sole, " "), how) {
				continue
			}
			for name, use := range d.openers(answers) {
				if c.file == snapshot.ManifestName && how != "flipped" && name != "eval" && name != "serve" {
					continue // one is as good as another
				}
				t.Run(fmt.Sprintf("%s of %d %s/%s", c.file, c.id, how, name), func(t *testing.T) {
					t.Parallel()
					dir := filepath.Join(t.TempDir(), "run")
					if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
						t.Fatal(err)
					}
					damage(t, filepath.Join(snapshot.Path(filepath.Join(dir, "snapshots"), c.id), c.file))
					var log bytes.Buffer
					got, err := use(t, dir, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
					if want := snapshot.Path(filepath.Join(dir, "snapshots"), c.want); err != nil || !strings.HasSuffix(want, got) || got == "" {
						t.Errorf("%q is read, %v; want %s", got, err, want)
					}
					if n := strings.Count(log.String(), "level=WARN"); n > 1 && name != "train" { // that has one for each
						t.Errorf("%d warnings, want one:\n%s", n, log.String())
					}
				})
			}
		}
	}
}

// TestDamagedSnapshotsAreNamed: what reads snapshots says once which it has passed over.
func TestDamagedSnapshotsAreNamed(t *testing.T) {
	t.Parallel()
	d := newDamagedRun(t)
	dir := filepath.Join(d.dir, "run")
	damages["flipped"](t, filepath.Join(dir, "snapshots", "snap-00000003", "dense-0000.arrow"))
	for name, use := range d.openers(nil) {
		if name == "serve" || name == "train" {
			continue // tried above, and it changes the folder
		}
		var log bytes.Buffer
		if _, err := use(t, dir, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		switch name {
		case "eval", "eval of the best", "insight", "predict", "predict without a job file", "export", "export of a format in one piece", "restore.from":
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "snap-00000003") || !strings.Contains(log.String(), "snap-00000002") {
				t.Errorf("%s: want one warning that names both, got\n%s", name, log.String())
			}
		}
	}
	for name, damaged := range map[string]func() ([]string, error){
		"ps lookup": func() ([]string, error) {
			r, err := job.LookUpStored(t.Context(), dir, "embedding", []int64{1<<48 + 1})
			return r.Damaged, err
		},
		"model describe": func() ([]string, error) {
			r, err := job.DescribeStoredModel(t.Context(), dir, 1)
			return r.Damaged, err
		},
		"model diff": func() ([]string, error) {
			r, err := job.DiffSnapshots(t.Context(), dir, filepath.Join(dir, "snapshots", "snap-00000001"))
			return r.Damaged, err
		},
		"snapshot export": func() ([]string, error) {
			r, err := job.Export(t.Context(), job.ExportOptions{Snapshot: dir, To: filepath.Join(t.TempDir(), "to")})
			return r.Damaged, err
		},
	} {
		if got, err := damaged(); err != nil || len(got) != 1 || !strings.Contains(got[0], "snap-00000003") {
			t.Errorf("%s: damaged are %q, %v", name, got, err)
		}
	}
}

// TestDamagedAndKept: a damaged snapshot does not count where others are removed for the newest, and the list says that it is damaged.
func TestDamagedAndKept(t *testing.T) {
	t.Parallel()
	d := newDamagedRun(t)
	whole := filepath.Join(d.dir, "run")
	left := func(t *testing.T, dir string) (ids []uint64) {
		t.Helper()
		entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
		return ids
	}
	for how, damage := range damages {
		for _, c := range damagedCases {
			if c.file == snapshot.ManifestName && how == "missing" || c.want == 3 {
				continue
			}
			name := fmt.Sprintf("%s of %d %s", c.file, c.id, how)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				copied := func() string {
					dir := filepath.Join(t.TempDir(), "run")
					if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
						t.Fatal(err)
					}
					damage(t, filepath.Join(snapshot.Path(filepath.Join(dir, "snapshots"), c.id), c.file))
					return dir
				}
				dir := copied()
				list, err := job.ListSnapshots(t.Context(), dir, job.Retention{Keep: 1})
				if err != nil {
					t.Fatal(err)
				}
				if how != "flipped" || c.file == snapshot.ManifestName {
					for _, s := range list.Snapshots {
						if bad := uint64(s.ID) > c.want; (s.Kind == "damaged") != bad || bad && !strings.Contains(s.Error, c.file) {
							t.Errorf("the list says %d is %s: %s", s.ID, s.Kind, s.Error)
						}
					}
				}
				for _, remove := range []bool{false, true} {
					pruned, err := job.PruneSnapshots(t.Context(), dir, job.Retention{Keep: 1}, remove)
					if err != nil || len(pruned.Gone) != int(c.want)-1 {
						t.Errorf("prune (%v) removes %+v, %v; want %d", remove, pruned, err, c.want-1)
					}
				}
				want := fmt.Sprint([]uint64{3, 2, 1}[:4-c.want])
				if got := fmt.Sprint(left(t, dir)); got != want {
					t.Errorf("prune --keep 1 leaves %s, want %s", got, want)
				}
				// Training stores 4, and keeps that and the newest of the good ones before it.
				dir = copied()
				if _, err := job.Run(t.Context(), d.config(t, dir, "snapshot.keep=2"), job.RunOptions{}); err != nil {
					t.Fatal(err)
				}
				if got, want := fmt.Sprint(left(t, dir)), fmt.Sprint([]uint64{4, 3, 2, 1}[:5-c.want]); got != want {
					t.Errorf("snapshot.keep 2 leaves %s, want %s", got, want)
				}
			})
		}
	}
}

// TestKeepVerifiesWhatItDidNotRead: a snapshot that this process neither wrote nor read is verified before another one goes for it.
func TestKeepVerifiesWhatItDidNotRead(t *testing.T) {
	t.Parallel()
	d := newDamagedRun(t)
	dir := filepath.Join(d.dir, "run")
	var log bytes.Buffer
	train := func(examples int, keep string) {
		t.Helper()
		cfg := d.config(t, dir, "snapshot.keep="+keep, fmt.Sprintf("train.max_examples=%d", examples))
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatal(err)
		}
	}
	train(2650, "9")
	train(2700, "9") // 5 and 4 are whole, 3 adds to 2
	damages["flipped"](t, filepath.Join(dir, "snapshots", "snap-00000004", "dense-0000.arrow"))
	for _, keep := range []string{"3", "4"} {
		train(2750, keep)
		for id, stays := range []bool{1: false, 2: true, 3: true, 4: true, 5: true, 6: true} {
			if _, err := os.Stat(snapshot.Path(filepath.Join(dir, "snapshots"), uint64(id))); id > 0 && (err == nil) != stays {
				t.Errorf("%d: %v; 6 and 5 are good, 4 is not, 3 is good and adds to 2: all of these stay, and 1 goes", id, err)
			}
		}
	}
	if n := strings.Count(log.String(), "damaged snapshot found"); n != 2 {
		t.Errorf("the log names the damaged one %d times, want once a run:\n%s", n, log.String())
	}
}

// TestDamagedBest: the best snapshot is damaged: the one that is best before it is read, or the newest, unless the best is asked for.
func TestDamagedBest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 400, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 60, 5000)
	cfg := epochsJob(t, dir, "train.libfm", "run", "epochs=60", "train.plateau.patience=50", "train.early_stop.patience=4", "train.early_stop.min_delta=0.001",
		"optimizer.sparse.adagrad.lr=0.5", "optimizer.dense.adam.lr=0.05", "snapshot.keep=1")
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	best, err := stored.BestIn(fsx.Local{}, stored.SnapshotsIn(cfg))
	if err != nil || best == nil {
		t.Fatal(best, err)
	}
	newest, err := stored.FindSnapshot(cfg.Dir)
	if err != nil || newest == best.Path {
		t.Fatalf("the best is the newest, %s, %v: the test says nothing", newest, err)
	}
	damages["flipped"](t, filepath.Join(best.Path, "rows-0000-0000.arrow"))
	r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
	if err != nil || r.Snapshot == best.Path {
		t.Errorf("eval reads %+v, %v; the best is damaged", r, err)
	}
	if _, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Snapshot: job.Best}); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("the best, which is damaged, was asked for: %v", err)
	}
}

// TestVerifyOfARunningJob: snapshots that are removed while they are verified are not said to be damaged.
func TestVerifyOfARunningJob(t *testing.T) {
	t.Parallel()
	d := newDamagedRun(t)
	dir := filepath.Join(d.dir, "run")
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 2610; n < 3000 && err == nil; n += 10 {
			_, err = job.Run(t.Context(), d.config(t, dir, "snapshot.keep=1", "train.batch=10", fmt.Sprintf("train.max_examples=%d", n)), job.RunOptions{})
		}
		done <- err
	}()
	for {
		checks, err := job.VerifySnapshots(t.Context(), dir)
		if err != nil {
			t.Error(err)
		}
		for _, c := range checks {
			if len(c.Faults) > 0 {
				t.Errorf("%s: %q", c.Path, c.Faults)
			}
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}
