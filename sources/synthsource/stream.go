package synthsource

import (
	"math"
	"time"

	"github.com/monolith-go/monolith/pipeline/position"
)

const (
	// maxExamples is the number of places that an epoch's positions have (see [position.EpochBits]).
	maxExamples = 1<<position.EpochBits - 1
	// maxItems leaves room for a slot in front of an item's number in a fid.
	maxItems = 1 << 46
	// maxSpan, in microseconds, keeps event times far from overflowing.
	maxSpan = 1 << 62
)

// Stream generates examples. It never changes, so it may be used from several goroutines at once.
//
// Every draw is a function of (Seed, index) in integer arithmetic; probabilities take math.Exp and math.Sincos, whose
// last bit may differ between kinds of processors, so clicks agree everywhere but for about one in 10¹⁵.
type Stream struct{ world *world }

// NewStream makes the world. Errors: [pipeline.ErrConfig], every fault at once.
func NewStream(opts Options) (*Stream, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Stream{newWorld(opts.WithDefaults())}, nil
}

// Options returns the options with every default filled in.
func (s *Stream) Options() Options { return s.world.opts.WithDefaults() }

// Len is the number of examples of the stream, or [Unbounded].
func (s *Stream) Len() int64 { return s.world.opts.Examples }

// The kinds of examples have draws of their own, so that no held-out example repeats one of the stream.
const (
	streamDraws  = 10
	heldOutDraws = 11
)

// At fills ex with example i, counted from 0; i may lie after the end of a bounded stream, where the world continues. It
// reuses ex.History and allocates nothing once that has room for four. i must not be negative.
func (s *Stream) At(i int64, ex *Example) { s.world.example(ex, streamDraws, i, i) }

// read fills ex with example i of what a source of the stream reads.
func (s *Stream) read(i int64, ex *Example) {
	if o := &s.world.opts; o.HeldOut > 0 {
		s.world.example(ex, heldOutDraws, o.Examples+i, o.Examples)
		return
	}
	s.At(i, ex)
}

// HeldOut returns n examples that follow example from-1 and that no stream contains. The world does not change meanwhile:
// all are drawn from it as it is at from, so they measure how well a model fits the present. Use [Stream.Len] as from
// to follow a bounded stream.
func (s *Stream) HeldOut(from int64, n int) []Example {
	held := make([]Example, n)
	for k := range held {
		s.world.example(&held[k], heldOutDraws, from+int64(k), from)
	}
	return held
}

// ProbabilityAt returns the best guess of ex.Click that could be made with full knowledge of the world as it was at
// example i and none of what came later: tastes as of i, and of items born later only what the record itself says. As of
// the moment ex was drawn it equals ex.Probability. It panics when ex did not come from a stream of the same size.
func (s *Stream) ProbabilityAt(ex *Example, i int64) float64 {
	return probability(s.world.logit(ex, i))
}

// example fills ex with number i of a kind from the world as it is at example now.
func (w *world) example(ex *Example, kind uint64, i, now int64) {
	d := draws{seed: mix(mix(w.opts.Seed, kind), uint64(i))}
	ex.Index = i
	ex.Time = w.opts.Start.UnixMicro() + i*w.opts.Interval.Microseconds()

	user := w.users.place(d.unit())
	audience, country, _ := w.user(user)
	ex.User, ex.Audience, ex.Country = int64(user)+1, int64(audience)+1, country
	const hour = int64(time.Hour / time.Microsecond)
	ex.Hour = (ex.Time/hour + country.hoursAhead()) % 24
	ex.Device = deviceOf(d.unit())

	place := w.items.place(d.unit())
	ex.Item = w.itemID(place, w.generation(place, now))
	_, _, category, _, price := w.item(ex.Item)
	ex.Category, ex.Price = int64(category)+1, float32(price)

	ex.History = ex.History[:0]
	for range d.below(5) {
		seen := d.below(w.opts.Categories)
		if u := d.unit(); u < 0.8 {
			// Everybody has two favourites; the one is seen three times as often as the other.
			rank := uint64(0)
			if u < 0.2 {
				rank = 1
			}
			seen = int(unit(mix(w.favourite, uint64(user)*2+rank)) * float64(w.opts.Categories))
		}
		ex.History = append(ex.History, int64(seen)+1)
	}

	logit := w.logit(ex, now)
	ex.Probability, ex.ExpectedMinutes = probability(logit), meanMinutes*math.Exp(minutesPower*logit)
	ex.Click, ex.Minutes = d.unit() < ex.Probability, 0
	if ex.Click {
		// The mean of eˣ of a normal x lies half its variance above that of its middle.
		ex.Minutes = float32(ex.ExpectedMinutes * math.Exp(minutesDeviation*normal(d.unit())-minutesDeviation*minutesDeviation/2))
	}
}

// probability is the logistic function.
func probability(logit float64) float64 { return 1 / (1 + math.Exp(-logit)) }
