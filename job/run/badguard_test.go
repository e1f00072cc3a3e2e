package run

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// TestBadElsewhere: what executors in other processes met, which only a run's statistics tell, is as bad as what this one meets.
func TestBadElsewhere(t *testing.T) {
	t.Parallel()
	counts := map[string]int64{"no label": 2, "malformed json": 1}
	for want, stats := range map[string]pipeline.RunStats{
		"job: all 3 records are bad (no label 2, malformed json 1); the executors' logs have each; is parse.format jsonl right": {BadRows: counts},
		"job: the only record is bad (no label 1); the executors' logs have each; is parse.format jsonl right":                  {BadRows: map[string]int64{"no label": 1}},
		"":  {},
		"1": {Rows: 1, BadRows: counts},
		"2": {LeftOut: 1, BadRows: counts},
	} {
		g := &badGuard{next: &pipeline.SkipBadRows{}, count: &pipeline.SkipBadRows{}, share: 1, format: "jsonl", log: slog.New(slog.DiscardHandler), now: time.Now, blocks: map[[2]string]int64{}}
		err := g.nothing(stats)
		if fails := len(want) > 1; errors.Is(err, ErrBadRows) != fails || fails && !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%+v: %v, want %s", stats, err, want)
		}
	}
}

// TestBadReasonsInOrder: the error of a run is the same each time, also where reasons are as frequent as others.
func TestBadReasonsInOrder(t *testing.T) {
	t.Parallel()
	counts := map[string]int64{"no label": 1, "malformed json": 1, "bad id": 1, "too long": 2}
	const want = "(too long 2, bad id 1, malformed json 1, no label 1)"
	for range 20 {
		g := &badGuard{next: &pipeline.SkipBadRows{}, count: &pipeline.SkipBadRows{}, share: 1, format: "jsonl"}
		if err := g.nothing(pipeline.RunStats{BadRows: counts}); !strings.Contains(fmt.Sprint(err), want) {
			t.Fatalf("%v, want %s", err, want)
		}
	}
}
