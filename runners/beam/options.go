package beam

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// Options are the choices of a [Run]; the zero value works. The fields that [pipeline.RunOptions] has too mean the same.
type Options struct {
	// Runner is where the plan runs: "prism", Beam's runner in this process; "flink", a job server of Apache Flink; "portable",
	// any other job service of Beam's portability API; "dataflow", Google Cloud Dataflow. Default "prism".
	Runner string
	// Service is the job service of flink and portable, and Dataflow the place of dataflow; nil for the other runners.
	Service  *Service
	Dataflow *Dataflow
	// Workers is the number of executors that step in parallel. Default 1; never more than there are splits. A runner with
	// several processes has one executor for each split instead.
	Workers int
	// Deterministic keeps all splits in one executor and takes from them in an order that is a function of positions alone.
	Deterministic bool
	// Interleave is that of [pipeline.RunOptions].
	Interleave int
	// MaxRows ends the run once that many rows have been taken, rows of earlier runs included. The executors of one process
	// share the count; on a runner with several processes each process counts for itself. 0: no bound.
	MaxRows int64
	// Splits are the splits to run; nil: all of the source's.
	Splits []pipeline.Split
	// Drain and Stop, when closed, end the run early and in order. They reach the executors of this process.
	Drain, Stop <-chan struct{}
	// Enough, when closed, ends the run as MaxRows does. It reaches the executors of this process.
	Enough <-chan struct{}
	// IdleEvery is how often a writer without input is called. Default 100 ms.
	IdleEvery time.Duration
	// Lease is how long an executor lives without a bundle of its element. Default 10 s; longer survives a slow runner,
	// shorter frees a moved element's splits sooner (fencing keeps the result right in any case).
	Lease time.Duration
	// Renew is about how often a bundle renews a lease and reports progress; five times that when nothing arrives. It is
	// how long a runner's checkpoint may have to wait. Default 200 ms, at most a quarter of Lease.
	Renew time.Duration
	// Logger is notified of the run, and at debug what Beam logs; nil: discard.
	Logger *slog.Logger
}

// idleFactor is how much longer a bundle waits when nothing has come since the last.
const idleFactor = 5

func (o Options) withDefaults() Options {
	o.Runner = cmp.Or(o.Runner, "prism")
	o.Workers = max(o.Workers, 1)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	o.Renew = cmp.Or(o.Renew, 200*time.Millisecond)
	o.Renew = min(o.Renew, o.Lease/4)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every fault of the options, each wrapping [pipeline.ErrConfig]; it changes nothing.
func (o Options) Validate() error {
	var faults []string
	if _, ok := runners[cmp.Or(o.Runner, "prism")]; !ok {
		faults = append(faults, fmt.Sprintf("no runner %q; there are %q", o.Runner, slices.Sorted(maps.Keys(runners))))
	}
	for _, d := range []struct {
		name  string
		value int64
	}{
		{"workers", int64(o.Workers)},
		{"max rows", o.MaxRows},
		{"interleave", int64(o.Interleave)},
		{"idle every", int64(o.IdleEvery)},
		{"lease", int64(o.Lease)},
		{"renew", int64(o.Renew)},
	} {
		if d.value < 0 {
			faults = append(faults, fmt.Sprintf("%s is below 0: %d", d.name, d.value))
		}
	}
	switch c, ok := runners[cmp.Or(o.Runner, "prism")]; {
	case !ok:
	case c.service && o.Service == nil:
		faults = append(faults, fmt.Sprintf("runner %q needs a job service", o.Runner))
	case c.dataflow && o.Dataflow == nil:
		faults = append(faults, fmt.Sprintf("runner %q needs the settings of Dataflow", o.Runner))
	case !c.service && o.Service != nil:
		faults = append(faults, fmt.Sprintf("runner %q takes no job service, not that at %q", cmp.Or(o.Runner, "prism"), o.Service.Endpoint))
	case !c.dataflow && o.Dataflow != nil:
		faults = append(faults, fmt.Sprintf("runner %q takes no settings of Dataflow, not those of project %q", cmp.Or(o.Runner, "prism"), o.Dataflow.Project))
	default:
		if d := o.destination(); d != nil {
			faults = append(faults, d.faults()...)
		}
	}
	if o.Splits != nil && len(o.Splits) == 0 {
		faults = append(faults, "splits are given but there are none")
	}
	if len(faults) > 0 {
		return fmt.Errorf("beam: %s: %w", strings.Join(faults, "; "), pipeline.ErrConfig)
	}
	return nil
}

// capability is what a runner can do, as far as the shape of a run depends on it.
type capability struct {
	// resumesBounded: an element of a bounded source may be given back and comes again (self-checkpoint in batch mode).
	resumesBounded bool
	// oneProcess: all elements are processed in the submitting process.
	oneProcess bool
	// service: plans are submitted to a job service; dataflow: to Dataflow.
	service, dataflow bool
}

// keeps reports whether an executor runs to its end within one bundle, because the runner takes no element of the plan back.
func (c capability) keeps(plan *pipeline.Plan) bool { return plan.Bounded() && !c.resumesBounded }

// capability is that of the runner that the options name.
func (o *Options) capability() capability {
	c := runners[o.Runner]
	if d := o.destination(); d != nil && d.here() {
		c.oneProcess = true
	}
	return c
}

// runners are the runners that a plan can run on.
var runners = map[string]capability{
	"prism":    {resumesBounded: true, oneProcess: true},
	"flink":    {service: true},
	"portable": {service: true},
	"dataflow": {dataflow: true},
}
