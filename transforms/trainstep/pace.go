package trainstep

import (
	"context"
	"fmt"
	"sync"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
)

// pace counts the examples that a model was trained on, for schedules. Of the splits that workers of this stage have resumed
// it knows how many were applied, also of a batch that a worker before them had only staged, and counts what comes since in the order of steps; so with one worker the
// number is a function of positions, whatever was killed. Of other splits it has what [StepOptions].Trained said. Safe for concurrent use.
type pace struct {
	opts *StepOptions

	mu      sync.Mutex
	asked   bool
	batches int64 // since Trained was asked
	own     map[pipeline.SplitID]int64
	others  map[pipeline.SplitID]int64 // as Trained said, those of own too
	total   int64                      // of own, and of others that are not in own
}

// counted is a store that knows how many examples of each split were applied when it was resumed. [*ps.Client] is one.
type counted interface {
	EachResumed(f func(id position.SplitID, p position.Progress))
	Applied(source, split string) position.Position
}

func newPace(opts *StepOptions) *pace {
	return &pace{opts: opts, own: map[pipeline.SplitID]int64{}}
}

// factor counts a batch of a worker and returns the schedule's factor for it and how many examples came before it. A batch that is read again for the sake of
// outputs is not counted: it will not be applied. Errors: those of [StepOptions].Trained.
func (p *pace) factor(ctx context.Context, s *step, o pipeline.Origin, rows int) (factor float64, examples int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ask := p.opts.Trained; ask != nil && (!p.asked || p.opts.TrainedEvery > 0 && p.batches >= p.opts.TrainedEvery) {
		others, err := ask(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("trainstep: asking how many examples were trained on, for the schedule of learning rates: %w", err)
		}
		p.asked, p.batches, p.others = true, 0, others
		p.sum()
	}
	id := o.ID()
	store, known := s.store.(counted)
	if !s.paced[id] {
		if s.paced == nil {
			s.paced = map[pipeline.SplitID]bool{}
		}
		if known {
			store.EachResumed(func(id position.SplitID, at position.Progress) {
				if !s.paced[id] {
					s.paced[id], p.own[id] = true, at.Rows
				}
			})
		}
		if !s.paced[id] {
			s.paced[id], p.own[id] = true, 0
		}
		p.sum()
	}
	factor, examples = p.opts.Schedule.Factor(p.total), p.total
	if known {
		if applied := store.Applied(o.Source, o.Split); o.To <= applied && o.From < applied {
			return factor, examples, nil
		}
	}
	p.own[id] += int64(rows)
	p.total += int64(rows)
	p.batches++
	return factor, examples, nil
}

func (p *pace) sum() {
	p.total = 0
	for _, n := range p.own {
		p.total += n
	}
	for id, n := range p.others {
		if _, own := p.own[id]; !own {
			p.total += n
		}
	}
}
