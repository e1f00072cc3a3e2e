package beam

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/monolith-go/monolith/pipeline"
)

// destination is where Beam graphs are submitted to: a [Service] or [Dataflow].
type destination interface {
	// run submits a job and follows it to its end. When ctx ends the job is cancelled. wholeEnd, if not nil, returns when all executors
	// have ended in order; a job that stays afterwards is ended. It returns what the executors in other processes count, where the
	// runner tells.
	run(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan, elements int, wholeEnd func(context.Context) error, log *slog.Logger) (pipeline.RunStats, error)
	// here reports whether executors run in the submitting process.
	here() bool
	// faults are what is wrong with its settings.
	faults() []string
	// translate makes what would be submitted.
	translate(ctx context.Context, p *sdk.Pipeline, plan *pipeline.Plan, elements int) (*Translation, error)
	// checkpoints describes what the runner stores of a run.
	checkpoints(plan *pipeline.Plan) string
}

// destination is where the options say that a plan is submitted to, nil for runners of this process.
func (o *Options) destination() destination {
	switch {
	case o.Service != nil:
		return o.Service
	case o.Dataflow != nil:
		return o.Dataflow
	}
	return nil
}

// submitted is a job that runs at a destination.
type submitted interface {
	// name is the id of the job.
	name() string
	// follow returns when the job has ended: nil when it is done. Errors: [ErrCancelled], and what the runner gives as the reason.
	follow(ctx context.Context) error
	// cancel ends it, unless it has ended: ctx is done then.
	cancel(ctx context.Context)
	// counted are the rows and batches of executors in other processes; asked for when the job is done.
	counted(ctx context.Context) (pipeline.RunStats, error)
}

// attend follows a job to its end and cancels it when ctx ends, or when wholeEnd has returned and the job is still there after wait.
// It joins what it starts.
func attend(ctx context.Context, j submitted, wait time.Duration, wholeEnd func(context.Context) error, log *slog.Logger) (counted pipeline.RunStats, err error) {
	bg := context.WithoutCancel(ctx)
	following, over := context.WithCancel(bg) // ends with the job, and so does what cancels it
	defer over()
	defer context.AfterFunc(ctx, func() { j.cancel(following) })()
	var whole atomic.Bool
	var watch sync.WaitGroup
	if wholeEnd != nil {
		watch.Go(func() {
			if wholeEnd(following) != nil {
				return
			}
			whole.Store(true)
			select {
			case <-time.After(wait):
				log.Debug("all executors have ended, so the job is", "id", j.name())
				j.cancel(following)
			case <-following.Done():
			}
		})
	}
	err = j.follow(bg)
	over()
	watch.Wait()
	switch {
	case whole.Load() && err != nil:
		return counted, nil
	case err != nil:
		return counted, err
	case wholeEnd != nil && !whole.Load():
		// It has ended by itself, which may be known here before that the executors have.
		late, stop := context.WithTimeout(ctx, settle)
		err := wholeEnd(late)
		stop()
		if err != nil {
			return counted, fmt.Errorf("job %s was stopped before its executors had ended: %w", j.name(), ErrCancelled)
		}
	}
	if counted, err = j.counted(bg); err != nil {
		log.Warn("the job's counters are not known", "id", j.name(), "err", err)
	}
	return counted, nil
}
