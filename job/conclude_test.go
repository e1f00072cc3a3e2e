package job_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// disturbed is a job of four epochs, with everything that is decided between them, that something happens to at the end of
// the second.
type disturbed struct {
	t     *testing.T
	cfg   *job.Config
	away  bool // the shards are elsewhere
	kill  context.CancelFunc
	ended chan error
}

// disturb makes the job of a data folder, with a folder of its own for the run.
func disturb(t *testing.T, data string, away bool, set ...string) *disturbed {
	run := t.TempDir()
	set = append(set, "epochs=4", "train.plateau.min_delta=0.3", "train.early_stop.patience=20", "ps.retry=5s", "dir="+run)
	if away {
		set = append(set, fmt.Sprintf("ps.addresses=[%q]", testbed.FreeAddr(t)))
	}
	d := &disturbed{t: t, away: away, cfg: epochsJob(t, data, "train.libfm", "run", set...)}
	d.serve()
	t.Cleanup(d.stop)
	return d
}

func (d *disturbed) serve() {
	if !d.away {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	d.kill, d.ended = cancel, ended
	go func() {
		_, err := job.Serve(ctx, d.cfg, job.ServeOptions{})
		ended <- err
	}()
}

// stop ends the shards without a snapshot.
func (d *disturbed) stop() {
	if d.kill != nil {
		d.kill()
		if err := <-d.ended; err != nil {
			d.t.Logf("the shards ended: %v", err)
		}
		d.kill = nil
	}
}

func (d *disturbed) snapshots() string { return filepath.Join(d.cfg.Dir, "snapshots") }

// block makes it impossible to take snapshots until unblock.
func (d *disturbed) block() {
	if err := os.Rename(d.snapshots(), d.snapshots()+".away"); err != nil {
		d.t.Error(err)
	}
	if err := os.WriteFile(d.snapshots(), nil, 0o644); err != nil {
		d.t.Error(err)
	}
}

func (d *disturbed) unblock() {
	if err := os.Remove(d.snapshots()); err != nil {
		d.t.Error(err)
	}
	if err := os.Rename(d.snapshots()+".away", d.snapshots()); err != nil {
		d.t.Error(err)
	}
}

// run trains until at, at the end of the second epoch, has made the run fail, or to the end.
func (d *disturbed) run(at func(cancel context.CancelFunc)) (*job.TrainResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return job.Run(ctx, d.cfg, job.RunOptions{Worker: "a", Evaluated: func(epoch int, _ job.Scores) {
		if epoch == 2 && at != nil {
			at(cancel)
			at = nil
		}
	}})
}

// TestEpochsAreConcludedOnce fails and kills those that take part in the end of an epoch, in the windows between storing what
// was decided, the snapshot and the report. The job must end with the bits of one that nobody disturbed: with every epoch
// trained, and with learning rate and early stop decided once an epoch.
func TestEpochsAreConcludedOnce(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	writeLibfm(t, filepath.Join(data, "train.libfm"), 500, 0)
	writeLibfm(t, filepath.Join(data, "val.libfm"), 100, 5000)
	whole, err := disturb(t, data, false).run(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := digest(t, whole.Snapshot)
	windows := map[string]func(*testing.T, *disturbed){
		"the snapshot fails": func(t *testing.T, d *disturbed) {
			if r, err := d.run(func(context.CancelFunc) { d.block() }); err == nil {
				t.Errorf("no error: %+v", r)
			}
			d.unblock()
		},
		"the snapshot fails twice": func(t *testing.T, d *disturbed) {
			if r, err := d.run(func(context.CancelFunc) { d.block() }); err == nil {
				t.Errorf("no error: %+v", r)
			}
			if d.away { // with shards of its own a run needs the folder to begin
				if r, err := d.run(nil); err == nil {
					t.Errorf("no error: %+v", r)
				}
			}
			d.unblock()
		},
		"the worker dies before the report": func(t *testing.T, d *disturbed) {
			if r, err := d.run(func(cancel context.CancelFunc) { cancel() }); err == nil {
				t.Errorf("no error: %+v", r)
			}
		},
	}
	elsewhere := map[string]func(*testing.T, *disturbed){
		"the snapshot fails and the coordinator dies": func(t *testing.T, d *disturbed) {
			if r, err := d.run(func(context.CancelFunc) { d.block() }); err == nil {
				t.Errorf("no error: %+v", r)
			}
			d.stop()
			d.unblock()
			d.serve()
		},
		"the coordinator dies before it gets what was decided": func(t *testing.T, d *disturbed) {
			if _, err := d.run(func(context.CancelFunc) { d.stop(); d.serve() }); err != nil {
				t.Error(err)
			}
		},
		"worker and coordinator die": func(t *testing.T, d *disturbed) {
			if r, err := d.run(func(cancel context.CancelFunc) { cancel() }); err == nil {
				t.Errorf("no error: %+v", r)
			}
			d.stop()
			d.serve()
		},
	}
	for _, away := range []bool{false, true} {
		for _, durability := range []string{"none", "wal"} {
			cases := maps.Clone(windows)
			if away {
				maps.Copy(cases, elsewhere)
			}
			for _, name := range slices.Sorted(maps.Keys(cases)) {
				t.Run(fmt.Sprintf("shards elsewhere=%v/durability=%s/%s", away, durability, name), func(t *testing.T) {
					t.Parallel()
					d := disturb(t, data, away, "ps.durability="+durability)
					cases[name](t, d)
					last, err := d.run(nil)
					if err != nil {
						t.Fatal(err)
					}
					if best := digest(t, last.BestSnapshot); best != digest(t, whole.BestSnapshot) {
						t.Errorf("the best snapshot %s is not that of the run without disturbance", last.BestSnapshot)
					}
					if last.Epochs != 4 {
						t.Errorf("%d epochs, want 4", last.Epochs)
					}
					info, err := job.InspectSnapshot(t.Context(), last.Snapshot)
					if err != nil {
						t.Fatal(err)
					}
					for source, splits := range info.Positions {
						for split, p := range splits {
							if p.Rows != 2000 {
								t.Errorf("%s/%s: %d rows, want 2000", source, split, p.Rows)
							}
						}
					}
					if got := digest(t, last.Snapshot); got != want {
						t.Errorf("digest %s, %s without disturbance", got, want)
					}
				})
			}
		}
	}
}

// TestTheBestSnapshotStays stops early, long after the best evaluation: its snapshot is still there, marked, and is the one
// that is evaluated.
func TestTheBestSnapshotStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 400, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 60, 5000)
	set := []string{
		"epochs=60", "snapshot.keep=1", "train.plateau.patience=50", "train.early_stop.patience=4", "train.early_stop.min_delta=0.001",
		"optimizer.sparse.adagrad.lr=0.5", "optimizer.dense.adam.lr=0.05",
	}
	cfg := epochsJob(t, dir, "train.libfm", "run", set...)
	var aucs []float64
	r, err := job.Run(t.Context(), cfg, job.RunOptions{Evaluated: func(_ int, s job.Scores) { aucs = append(aucs, s["auc"]) }})
	if err != nil {
		t.Fatal(err)
	}
	best := slices.Index(aucs, slices.Max(aucs)) + 1
	if !r.EarlyStopped || best == len(aucs) {
		t.Fatalf("stopped %v after %d evaluations, the best was the %dth: the test needs others", r.EarlyStopped, len(aucs), best)
	}
	if r.BestEpoch != best || r.Metrics["best_auc"] != slices.Max(aucs) || r.BestSnapshot == r.Snapshot {
		t.Errorf("best epoch %d (%v) in %s, want %d (%v) and another than %s", r.BestEpoch, r.Metrics["best_auc"], r.BestSnapshot, best, slices.Max(aucs), r.Snapshot)
	}
	for asked, want := range map[string]struct {
		path, which string
		auc         float64
	}{
		"":             {r.BestSnapshot, fmt.Sprintf("best, after epoch %d, %.5f", best, slices.Max(aucs)), slices.Max(aucs)},
		job.Best:       {r.BestSnapshot, fmt.Sprintf("best, after epoch %d, %.5f", best, slices.Max(aucs)), slices.Max(aucs)},
		r.BestSnapshot: {r.BestSnapshot, fmt.Sprintf("best, after epoch %d, %.5f", best, slices.Max(aucs)), slices.Max(aucs)},
		job.Newest:     {r.Snapshot, "newest", aucs[len(aucs)-1]},
	} {
		e, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Snapshot: asked})
		if err != nil {
			t.Fatal(err)
		}
		if e.Snapshot != want.path || e.Which != want.which || e.Metrics["auc"] != want.auc {
			t.Errorf("%q evaluates %s (%s), auc %v; want %+v", asked, e.Snapshot, e.Which, e.Metrics["auc"], want)
		}
	}
	info, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if err != nil || info.Which != "newest" || info.Path != r.Snapshot || info.Best != r.BestSnapshot {
		t.Errorf("inspect: %s (%s), best %s, %v", info.Path, info.Which, info.Best, err)
	}
	if entries, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots")); err != nil || len(entries) != 2 {
		t.Errorf("snapshots %v, %v; want the newest and the best", entries, err)
	}
	// An export is of the best one where the job says so, unless that is damaged.
	for want, best := range map[string]bool{filepath.Base(r.Snapshot): false, filepath.Base(r.BestSnapshot): true} {
		e, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Best: best, Format: "native", Dir: filepath.Join(t.TempDir(), "models")})
		if err != nil || filepath.Base(e.Snapshot) != want {
			t.Errorf("best %v: export of %+v, %v, want %s", best, e, err, want)
		}
	}
	damaged := t.TempDir()
	if err := os.CopyFS(damaged, os.DirFS(filepath.Join(cfg.Dir, "snapshots"))); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(damaged, filepath.Base(r.BestSnapshot), "*"))
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, ".json") && len(b) > 100 {
			b[len(b)/2] ^= 1
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	e, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: damaged, Best: true, Format: "native", Dir: filepath.Join(t.TempDir(), "models")})
	if err != nil || filepath.Base(e.Snapshot) != filepath.Base(r.Snapshot) {
		t.Errorf("the best one is damaged: export of %+v, %v, want %s", e, err, r.Snapshot)
	}
	// Who serves the job has the newest, and a word that there was a better one.
	var log bytes.Buffer
	a, end := serveModels(t.Context(), t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Load: func() (*job.Config, error) { return cfg, nil }}}, Poll: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for ok := false; !ok; {
		_, ok = a.freshness(cfg.Name)
	}
	end()
	if text := log.String(); strings.Count(text, "that of the best evaluation") != 1 || !strings.Contains(text, "path="+r.BestSnapshot) || !strings.Contains(text, fmt.Sprintf("best, after epoch %d, %.5f", best, slices.Max(aucs))) {
		t.Errorf("want one line of the log of a server that names the best snapshot:\n%s", text)
	}
	// Once more: it has ended and stays so.
	again, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil || again.Examples != 0 || again.Snapshot != r.Snapshot || again.BestSnapshot != r.BestSnapshot {
		t.Errorf("again: %+v, %v", again, err)
	}
	// Without early stop the newest is read by default. One epoch has nothing to choose from.
	plain := epochsJob(t, dir, "train.libfm", "run", set...)
	plain.Train.EarlyStop = nil
	if e, err := job.Evaluate(t.Context(), plain, job.EvalOptions{}); err != nil || e.Snapshot != r.Snapshot {
		t.Errorf("without early_stop %+v, %v", e, err)
	}
	none := epochsJob(t, dir, "train.libfm", "none", append(set, "epochs=1")...)
	none.Train.EarlyStop = nil
	if _, err := job.Run(t.Context(), none, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Evaluate(t.Context(), none, job.EvalOptions{Snapshot: job.Best}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("no best snapshot: %v", err)
	}
}

// TestALaterEpochIsWorse trains on, long after the best evaluation, without early_stop: the end says which epoch was better, and its snapshot is still there, also where the run was
// stopped in between.
func TestALaterEpochIsWorse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 400, 0)
	// What is held out has labels that nothing explains: evaluations differ by chance, and the last is not the best.
	var held strings.Builder
	for i := range 60 {
		fmt.Fprintf(&held, "%d %d:1 %d:1 %d:1\n", i*i/7%2, i*7%11, 20+i%5, 40+i%13)
	}
	if err := os.WriteFile(filepath.Join(dir, "val.libfm"), []byte(held.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	set := []string{"epochs=12", "snapshot.keep=1", "optimizer.sparse.adagrad.lr=0.5", "optimizer.dense.adam.lr=0.05"}
	open := func(run string, more ...string) *job.Config {
		cfg := epochsJob(t, dir, "train.libfm", run, append(slices.Clone(set), more...)...)
		cfg.Train.EarlyStop, cfg.Train.Plateau = nil, nil
		return cfg
	}
	cfg := open("run")
	var aucs []float64
	r, err := job.Run(t.Context(), cfg, job.RunOptions{Evaluated: func(_ int, s job.Scores) { aucs = append(aucs, s["auc"]) }})
	if err != nil {
		t.Fatal(err)
	}
	best := slices.Index(aucs, slices.Max(aucs)) + 1
	if len(aucs) != 12 || fmt.Sprintf("%.4f", aucs[11]) == fmt.Sprintf("%.4f", slices.Max(aucs)) {
		t.Fatalf("the best of %d evaluations was the %dth: the test needs a worse one after it", len(aucs), best)
	}
	says := fmt.Sprintf("held out: auc was best after epoch %d, %.4f, and is %.4f after epoch 12; that snapshot is kept, for --snapshot best; train.early_stop", best, slices.Max(aucs), aucs[11])
	checks := func(name string, r *job.TrainResult, cfg *job.Config) {
		t.Helper()
		if !slices.ContainsFunc(r.Doubts, func(d string) bool { return strings.HasPrefix(d, says) }) {
			t.Errorf("%s: %q, want one that begins with %q", name, r.Doubts, says)
		}
		if r.EarlyStopped || r.BestEpoch != best || r.Metrics["best_auc"] != slices.Max(aucs) || r.BestSnapshot == r.Snapshot {
			t.Errorf("%s: best epoch %d (%v) in %q of %q, want %d (%v)", name, r.BestEpoch, r.Metrics["best_auc"], r.BestSnapshot, r.Snapshot, best, slices.Max(aucs))
		}
		for asked, want := range map[string]float64{job.Best: slices.Max(aucs), "": aucs[11]} {
			if e, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Snapshot: asked}); err != nil || e.Metrics["auc"] != want {
				t.Errorf("%s: %q evaluates %+v, %v; want an auc of %v", name, asked, e, err, want)
			}
		}
	}
	checks("one run", r, cfg)
	// In pieces, each run of some epochs: what was best is remembered.
	for _, upTo := range []int{2, 7, 12} {
		cfg = open("pieces", fmt.Sprintf("epochs=%d", upTo))
		if r, err = job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	checks("three runs", r, cfg)
	// Exports are of the newest snapshot, and say where the best is.
	for from, want := range map[string]int{cfg.Dir: 1, r.Snapshot: 0, r.BestSnapshot: 0} {
		said := 0
		if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{
			Snapshot: from, Dir: t.TempDir(), Format: "native", Notice: func(text string) { said += strings.Count(text, r.BestSnapshot) },
		}); err != nil || said != want {
			t.Errorf("exporting %s names the best %d times, %v; want %d", from, said, err, want)
		}
	}
	// With early_stop from then on, by default it is the best that is read; with another metric what was best by auc is not.
	early := epochsJob(t, dir, "train.libfm", "run", set...)
	if e, err := job.Evaluate(t.Context(), early, job.EvalOptions{}); err != nil || e.Metrics["auc"] != slices.Max(aucs) {
		t.Errorf("with early_stop: %+v, %v", e, err)
	}
	other := epochsJob(t, dir, "train.libfm", "run", append(slices.Clone(set), "epochs=13", "train.early_stop.metric=log_loss")...)
	if r, err = job.Run(t.Context(), other, job.RunOptions{}); err != nil || r.BestEpoch != 13 || r.Metrics["best_log_loss"] != r.Metrics["log_loss"] {
		t.Errorf("by log loss: %+v, %v", r, err)
	}
}
