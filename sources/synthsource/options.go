package synthsource

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// Unbounded as the number of examples means a stream without end: it would stop after 2⁴⁰-1 examples, where numbers for
// them run out.
const Unbounded = -1

// Options describe a stream. The zero value is the default stream: 200,000 examples, one split.
type Options struct {
	// Seed makes the world and everything that happens in it.
	Seed uint64
	// Examples is the length of the stream; default 200,000, [Unbounded] for no end.
	Examples int64
	// Period is the number of examples in which the world drifts as [Drift] says; default Examples, or 200,000 when
	// the stream is unbounded. With more examples a period there is more time to learn the same changes.
	Period int64
	// HeldOut, if not 0, has a source read so many held-out examples ([Stream.HeldOut]) that follow a bounded stream in place of
	// the stream itself: for an evaluation of what was trained on the stream of the same other options.
	HeldOut int64
	// Splits is the number of splits; split k holds the examples k, k+Splits, k+2·Splits, ... Default 1.
	Splits int

	// Users is the number of users; default 500. More users leave fewer examples to learn each one's readiness from.
	Users int
	// Items is the number of items that exist at any time; default 300. More items leave fewer examples for each.
	Items int
	// Categories of items, default 12, at least 5 (topics have four dimensions).
	Categories int
	// Audiences are the groups of users that share a taste; default 8. Each has a taste for every category, so more
	// audiences or categories leave fewer examples to learn a taste from.
	Audiences int
	// Drift is how the world changes; nil means [DefaultDrift]. The zero Drift is a world that does not change.
	Drift *Drift

	// Start is the event time of the first example; default 2026-01-01T00:00:00Z.
	Start time.Time
	// Interval is the event time between two examples; default 3 s, so 200,000 examples are about a week. It moves the
	// local hour that users see, not the drift. At least 1 µs.
	Interval time.Duration

	// Rate bounds the examples that readers return, in examples per second of the clock, all splits taken together;
	// 0 means as fast as they are taken. What was not used within the last second is lost.
	Rate float64
	// BlockRows is the number of examples in a block; default 1024. With a Rate, blocks hold at most what is due in a
	// tenth of a second, so that examples arrive evenly.
	BlockRows int
}

// Drift is how the world changes during one period, and again in each following one.
type Drift struct {
	// Turnover is the number of times each place of the catalogue changes hands in a period; places take turns. Of the
	// items that exist now, the share Turnover·x is younger than x periods.
	Turnover float64
	// Rotation is the part of a full circle by which an audience's taste turns in a period, steadily.
	Rotation float64
	// Shifts are the moments of a period, each in [0, 1), at which the taste of one audience in eight (of one, if
	// there are fewer) turns by a sixth of a circle at once. Audiences take turns, also from one period to the next.
	Shifts []float64
}

// DefaultDrift replaces two items in five during a period, turns tastes by a twentieth of a circle and shifts an
// audience's taste at 0.55 and another's at 0.7 of the period. So, of what is known in the middle of a period, about a
// quarter of the gain over chance is lost at its end.
func DefaultDrift() *Drift {
	return &Drift{Turnover: 0.4, Rotation: 0.05, Shifts: []float64{0.55, 0.7}}
}

// WithDefaults returns a copy in which every field has its effective value and that shares nothing with o.
func (o Options) WithDefaults() Options {
	const examples = 200_000
	setDefault(&o.Examples, examples)
	setDefault(&o.Period, max(o.Examples, 0))
	setDefault(&o.Period, examples)
	setDefault(&o.Splits, 1)
	setDefault(&o.Users, 500)
	setDefault(&o.Items, 300)
	setDefault(&o.Categories, 12)
	setDefault(&o.Audiences, 8)
	setDefault(&o.Interval, 3*time.Second)
	setDefault(&o.BlockRows, 1024)
	if o.Drift == nil {
		o.Drift = DefaultDrift()
	} else {
		drift := *o.Drift
		drift.Shifts = slices.Clone(drift.Shifts)
		o.Drift = &drift
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every fault at once, each wrapping [pipeline.ErrConfig]. Zero fields mean their defaults.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("synthsource: "+format+": %w", append(args, pipeline.ErrConfig)...))
		}
	}
	inRange := func(name string, v, low, high int) {
		check(low <= v && v <= high, "%s is %d, not in %d to %d", name, v, low, high)
	}
	check(o.Examples >= Unbounded && o.Examples <= maxExamples, "examples is %d, not in 1 to %d or %d (unbounded)", o.Examples, int64(maxExamples), Unbounded)
	check(o.HeldOut >= 0 && o.HeldOut <= maxExamples, "held_out is %d, not in 0 to %d", o.HeldOut, int64(maxExamples))
	check(o.HeldOut == 0 || o.Examples != Unbounded, "held_out is %d, but a stream without end has nothing behind it; set examples", o.HeldOut)
	check(1 <= o.Period && o.Period <= maxExamples, "period is %d, not in 1 to %d", o.Period, int64(maxExamples))
	inRange("splits", o.Splits, 1, 100_000)
	inRange("users", o.Users, 1, 100_000_000)
	inRange("items", o.Items, 1, 100_000_000)
	inRange("categories", o.Categories, topicDim+1, 10_000)
	inRange("audiences", o.Audiences, 1, 10_000)
	inRange("block_rows", o.BlockRows, 1, 1<<20)
	check(o.Interval >= time.Microsecond && o.Interval <= 24*time.Hour, "interval is %v, not in 1µs to 24h", o.Interval)
	year := o.Start.UTC().Year()
	check(1970 <= year && year < 10_000, "start is %v, not in the years 1970 to 9999", o.Start)
	check(o.Rate >= 0 && !math.IsInf(o.Rate, 1), "rate is %v, not a finite number from 0", o.Rate)
	check(0 <= o.Drift.Turnover && o.Drift.Turnover <= 1000, "drift turnover is %v, not in 0 to 1000", o.Drift.Turnover)
	check(math.Abs(o.Drift.Rotation) <= 1000, "drift rotation is %v, not in -1000 to 1000", o.Drift.Rotation)
	examples := o.Examples
	if examples == Unbounded {
		examples = maxExamples
	}
	span := float64(examples+o.HeldOut) * float64(o.Interval.Microseconds())
	check(span <= maxSpan, "examples × interval is %g µs, more than %d", span, int64(maxSpan))
	items := float64(o.Items) * (2 + o.Drift.Turnover*float64(examples)/float64(o.Period))
	check(items <= maxItems, "drift would number %g items (items × turnover × examples ÷ period), more than %d", items, int64(maxItems))
	for k, at := range o.Drift.Shifts {
		check(0 <= at && at < 1, "drift shift %d is %v, not in [0, 1)", k, at)
	}
	return errors.Join(faults...)
}
