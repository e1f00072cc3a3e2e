package local

import (
	"context"

	"github.com/monolith-go/monolith/pipeline"
)

// Describe describes how [Run] would cut a plan with the same options. Splits that cannot be listed are reported in the cut.
func Describe(ctx context.Context, plan *pipeline.Plan, o pipeline.RunOptions) *pipeline.Cut {
	cut := &pipeline.Cut{Runner: "local", Executors: "in this process", Positions: "with the parameters, in the same commit as the gradients"}
	for _, s := range plan.Segments {
		sc := pipeline.SegmentCut{Workers: max(o.Workers, 1), Elements: 1, Form: "one executor, whose workers take the splits"}
		for _, source := range s.Sources() {
			sc.Sources = append(sc.Sources, source.Name)
		}
		splits, err := s.Splits(ctx)
		if err != nil {
			sc.Unknown = err.Error()
		}
		if sc.Splits = len(splits); sc.Splits > 0 {
			sc.Workers = min(sc.Workers, sc.Splits)
		}
		cut.Segments = append(cut.Segments, sc)
	}
	return cut
}
