package jobbench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job/jobbench"
	"github.com/monolith-go/monolith/model/zoo"
)

// TestModel: each model of the zoo has a rate, and what is no model or is not wanted any more has an error.
func TestModel(t *testing.T) {
	o := bench.Options{Rounds: 1, Each: 5 * time.Millisecond}
	names := zoo.Names()
	if testing.Short() {
		names = []string{zoo.LR, zoo.DeepFM, zoo.MMoE, zoo.DSSM}
	}
	for _, name := range names {
		r, err := jobbench.Model(t.Context(), name, 2, o)
		if err != nil || r.Ours <= 0 || r.Control <= 0 || r.Unit != "examples/cpu-s" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := jobbench.Model(t.Context(), "no such", 2, o); err == nil {
		t.Error("a model that is not there is measured")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := jobbench.Model(ctx, zoo.LR, 2, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
}
