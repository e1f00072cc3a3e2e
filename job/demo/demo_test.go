package demo_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/demo"
	"github.com/monolith-go/monolith/pipeline"
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
		if err != nil || again.Examples != 0 || again.HeldOut != h {
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
	if r, err = demo.Run(t.Context(), opts); err != nil || r.Drained || r.Examples+done != 4000 {
		t.Errorf("%d examples after %d, %v", r.Examples, done, err)
	}
}
