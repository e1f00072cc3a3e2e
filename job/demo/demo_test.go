package demo_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/demo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// TestDemoKeepsItsPromises runs whole demos of a fifth of the usual length: the model that learned on must end within .04 of the
// best AUC that is possible on the held-out examples (a whole demo ends within .02) and at least .01 above the same model
// frozen half way.
func TestDemoKeepsItsPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for seconds; part of the full run")
	}
	for _, c := range []struct {
		seed    uint64
		workers int
	}{{1, 1}, {206, 2}} {
		dir := t.TempDir()
		opts := job.DemoOptions{Examples: 200_000, Seed: c.seed, Model: "deepfm", Workers: c.workers, Dir: dir}
		r, err := demo.Run(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		h := r.HeldOut
		t.Logf("seed %d, %d worker(s): best %.4f, online %.4f, frozen %.4f, %.0f examples/s", c.seed, c.workers, h.BestAUC, h.AUC, h.FrozenAUC, r.ExamplesPerSecond)
		if r.Examples != 200_000 || r.Rows == 0 || len(r.OverTime) != 10 {
			t.Errorf("%d examples, %d rows, %d intervals", r.Examples, r.Rows, len(r.OverTime))
		}
		if h.AUC < h.BestAUC-.04 || h.AUC < h.FrozenAUC+.01 {
			t.Errorf("seed %d: best %.4f, online %.4f, frozen %.4f", c.seed, h.BestAUC, h.AUC, h.FrozenAUC)
		}
		if _, err := os.Stat(filepath.Join(r.Snapshot, "manifest.json")); err != nil {
			t.Error(err)
		}
		again, err := demo.Run(t.Context(), opts)
		if err != nil || again.Examples != r.Examples || again.ResumedFrom != r.Examples || again.HeldOut != h {
			t.Errorf("the same demo again: %+v, %v", again, err)
		}
	}
}

func TestFolderOfAnotherDemo(t *testing.T) {
	opts := job.DemoOptions{Examples: 2000, Seed: 1, Model: "lr", Workers: 1, Dir: t.TempDir()}
	if _, err := demo.Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	opts.Seed = 2
	if _, err := demo.Run(t.Context(), opts); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// TestDrainedDemoGoesOn closes the drain channel before the demo begins.
func TestDrainedDemoGoesOn(t *testing.T) {
	drain := make(chan struct{})
	close(drain)
	opts := job.DemoOptions{Examples: 4000, Seed: 1, Model: "fm", Workers: 1, Dir: t.TempDir()}
	opts.Drain = drain
	r, err := demo.Run(t.Context(), opts)
	if err != nil || !r.Drained {
		t.Fatalf("%+v, %v", r, err)
	}
	done := r.Examples
	opts.Drain = nil
	if r, err = demo.Run(t.Context(), opts); err != nil || r.Drained || r.Examples != 4000 || r.ResumedFrom != done {
		t.Errorf("%d examples after %d, %v", r.Examples, done, err)
	}
}

// TestInterruptedDemoGoesOnWithItsTable drains a demo before its middle, and makes another one's folder what kill -9 in the
// second half leaves: with predictions after the newest snapshot, the last of them torn. Both must say from where they go
// on, and end with the table of a demo that was not interrupted, as far as the order allows in which partitions arrive.
func TestInterruptedDemoGoesOnWithItsTable(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for seconds; part of the full run")
	}
	const (
		examples = 40_000
		asked    = 16_000 // where the drained one is asked to stop; what was read by then is trained, but not beyond the half
		most     = examples/2 + 512
	)
	// A line is of 4,000 examples, others by the order of arrival: of its AUC the standard error is some .01 (Hanley and McNeil, 1982), of the difference of two .014.
	const apart = .07
	options := func() job.DemoOptions {
		return job.DemoOptions{Examples: examples, Seed: 1, Model: "lr", Workers: 1, Dir: t.TempDir()}
	}
	killed := options()
	whole, err := demo.Run(t.Context(), killed)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"result.json", filepath.Join("snapshots", filepath.Base(whole.Snapshot))} {
		if err := os.RemoveAll(filepath.Join(killed.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	left, err := job.InspectSnapshot(t.Context(), killed.Dir)
	if err != nil {
		t.Fatal(err)
	}
	trained := int64(0)
	for _, p := range left.Positions["kafka"] {
		trained += p.Rows
	}
	if trained < examples/2 || trained >= examples {
		t.Fatalf("the snapshot that is left holds %d examples", trained)
	}
	predictions := filepath.Join(killed.Dir, "predictions.bin")
	info, err := os.Stat(predictions)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(predictions, info.Size()-5); err != nil {
		t.Fatal(err)
	}

	drained := options()
	drain, seen := make(chan struct{}), 0
	drained.Drain = drain
	drained.Observe = func(o trainstep.Observation) {
		before := seen
		if seen += o.Scores.Rows; before < asked && seen >= asked {
			close(drain)
		}
	}
	first, err := demo.Run(t.Context(), drained)
	if err != nil || !first.Drained || first.ResumedFrom != 0 || first.Examples < asked || first.Examples > most {
		t.Fatalf("%+v, %v", first, err)
	}
	if len(first.OverTime) != int(first.Examples/(examples/10)) {
		t.Errorf("%d examples, a table of %d lines", first.Examples, len(first.OverTime))
	}

	for _, c := range []struct {
		name   string
		opts   job.DemoOptions
		from   int64
		before []job.DemoInterval
	}{{"drained", drained, first.Examples, first.OverTime}, {"killed", killed, trained, whole.OverTime}} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			opts := c.opts
			opts.Drain, opts.Observe, opts.Notice = nil, nil, func(s string) { said = append(said, s) }
			r, err := demo.Run(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("the demo in %s continues from %d of %d examples", opts.Dir, c.from, examples)
			if !slices.Equal(said, []string{want}) {
				t.Errorf("said %q, want %q", said, want)
			}
			if r.Examples != examples || r.ResumedFrom != c.from || r.Drained || len(r.OverTime) != len(whole.OverTime) {
				t.Fatalf("%+v, want the table of %+v", r, whole)
			}
			for k, line := range r.OverTime {
				w := whole.OverTime[k]
				if line.Examples != w.Examples || math.Abs(line.AUC-w.AUC) > apart || math.Abs(line.BestAUC-w.BestAUC) > apart || line.ExamplesPerSecond <= 0 {
					t.Errorf("line %d is %+v, uninterrupted %+v", k, line, w)
				}
				if line.Examples <= c.from && line != c.before[k] {
					t.Errorf("line %d is %+v, was %+v before the demo was resumed", k, line, c.before[k])
				}
			}
			if p, w := r.Progressive, whole.Progressive; math.Abs(p.AUC-w.AUC) > .02 || math.Abs(p.LogLoss-w.LogLoss) > .02 {
				t.Errorf("progressive %+v, uninterrupted %+v", p, w)
			}

			said = nil
			again, err := demo.Run(t.Context(), opts)
			if r.ResumedFrom = examples; err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("the result again: %+v, was %+v, %v", again, r, err)
			}
			if want := fmt.Sprintf("the demo in %s has ended; this is its result again", opts.Dir); !slices.Equal(said, []string{want}) {
				t.Errorf("said %q, want %q", said, want)
			}
			if err := os.Remove(filepath.Join(opts.Dir, "result.json")); err != nil { // as if killed just before it was stored
				t.Fatal(err)
			}
			again, err = demo.Run(t.Context(), opts)
			if err != nil || !slices.Equal(again.OverTime, r.OverTime) || again.Progressive != r.Progressive || again.HeldOut != r.HeldOut {
				t.Errorf("the result made again: %+v, was %+v, %v", again, r, err)
			}
		})
	}
}

// TestDemoWithoutItsPredictions: a snapshot with fewer predictions than examples is refused with what to do.
func TestDemoWithoutItsPredictions(t *testing.T) {
	opts := job.DemoOptions{Examples: 2000, Seed: 1, Model: "lr", Workers: 1, Dir: t.TempDir()}
	if _, err := demo.Run(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"result.json", "predictions.bin"} {
		if err := os.Remove(filepath.Join(opts.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := demo.Run(t.Context(), opts); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "predictions of 0 examples") {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// TestFolderInUse: two processes would overwrite each other's files.
func TestFolderInUse(t *testing.T) {
	opts := job.DemoOptions{Examples: 2000, Seed: 1, Model: "lr", Workers: 1, Dir: t.TempDir()}
	lock, err := fsx.TryLock(filepath.Join(opts.Dir, "demo.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if _, err := demo.Run(t.Context(), opts); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "another --dir") {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestFolderThatCannotBe: what cannot be made, as the folder for temporary files of a container that has none, is an error that says what to do.
func TestFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", filepath.Join(file, "tmp"))
	for _, dir := range []string{"", filepath.Join(file, "demo")} {
		opts := job.DemoOptions{Examples: 2000, Seed: 1, Model: "lr", Workers: 1, Dir: dir}
		if _, err := demo.Run(t.Context(), opts); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "name another folder (--dir FOLDER)") {
			t.Errorf("dir %q: got %v", dir, err)
		}
	}
}
