package beam_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/runners/local"
)

// BenchmarkRun runs the same bounded plan on both runners; what Beam adds is a constant for each run.
func BenchmarkRun(b *testing.B) {
	for _, rows := range []int{1 << 10, 1 << 20} {
		for _, runner := range []string{"local", "prism"} {
			b.Run(fmt.Sprintf("rows=%d/runner=%s", rows, runner), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(rows))
				s := newScene(b, map[string]int{"a": rows / 2, "b": rows / 2})
				s.maxRows = 64
				for b.Loop() {
					s.ledger = newLedger()
					var err error
					if runner == "local" {
						_, err = local.Run(b.Context(), s.plan(), pipeline.RunOptions{Workers: 2})
					} else {
						_, err = s.run(context.WithoutCancel(b.Context()), beam.Options{Workers: 2})
					}
					if err != nil || s.ledger.rows() != int64(rows) {
						b.Fatal(s.ledger.rows(), err)
					}
				}
			})
		}
	}
}
