package jobbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// The month: users look at items for 30 days. Both are born steadily and are seen for a time that is exponential with a mean, so that most ids
// that there ever were are never seen again, and clicks are drawn from a logistic model of the two.
const (
	monthEvents = 3_000_000
	monthDays   = 30
	monthBatch  = 4096
	// eventsOfAUC are compared at most, from the second half of the month: every so manieth.
	eventsOfAUC = 4_000_000
)

// kinds are the features of an event.
var kinds = []struct {
	slot int
	// every is how many events there are to a new id, seen for how many days it is seen on average, expire after how many without an occurrence it goes.
	every        int
	seen, expire float64
}{
	{slot: 1, every: 20, seen: 1, expire: 4},
	{slot: 2, every: 100, seen: 2, expire: 6},
}

// monthLimit is how many rows there may be for an event of the month: less than expiry alone would leave.
const monthLimit = .017

// Month trains logistic regression on a month of o.Rows events whose ids drift, with rows that expire and a limit of memory, and beside it on the same events without either: on two
// shards of this process each. It returns the AUC of both over predictions made before training, from the second half of the month; what their tables take at its end and in its middle, which is flat where the
// ratio is 1; and events a second of both together. Everything but the last is a function of o.Rows.
func Month(ctx context.Context, o bench.Options) (_ []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = monthEvents
	}
	day := float64(o.Rows) / monthDays
	spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "w", Dim: 1, Init: param.Zeros(), Optimizer: optim.Adagrad{LR: .1, InitialAccumulator: .1}}}}
	rules := param.Retention{
		Slots: map[int]param.SlotRetention{}, Full: param.FullOldest,
		MaxBytes: max(int64(monthLimit*float64(o.Rows)), 4*param.LeastRows) * spec.RowBytes(),
	}
	for _, k := range kinds {
		rules.Slots[k.slot] = param.SlotRetention{Expire: int64(k.expire * day)} // an event takes a microsecond
	}
	runs := []*month{{layout: &param.Layout{Tables: []param.Table{spec}, Retention: rules}}, {layout: &param.Layout{Tables: []param.Table{spec}}}}
	defer func() {
		for _, m := range runs {
			err = errors.Join(err, m.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, m := range runs {
		if err := m.open(ctx); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	var e events
	keep := max((o.Rows/2+eventsOfAUC-1)/eventsOfAUC, 1)
	middle := o.Rows / 2
	for from := 0; from < o.Rows; from += monthBatch {
		to := min(from+monthBatch, o.Rows)
		e.draw(from, to, day)
		for _, m := range runs {
			if from <= middle && middle < to {
				if m.middle, err = m.tables(ctx); err != nil {
					return nil, err
				}
			}
			if err := m.train(ctx, &e, keep, from >= middle); err != nil {
				return nil, err
			}
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
	seconds := time.Since(begin).Seconds()
	var auc [2]float64
	var end [2]ps.TableStats
	for i, m := range runs {
		if end[i], err = m.tables(ctx); err != nil {
			return nil, err
		}
		auc[i], _ = metric.AUC(m.scores, m.labels, nil)
	}
	name, machine := fmt.Sprintf("month of %g M events: ", float64(o.Rows)/1e6), bench.Machine()
	mb := func(t ps.TableStats) float64 { return float64(t.Bytes) / 1e6 }
	return []bench.Result{
		{Name: name + "AUC", Unit: "", Ours: auc[0], Theirs: map[string]float64{"without a limit": auc[1]}, Ratio: auc[0] / auc[1], Machine: machine},
		{Name: name + "rows", Unit: "rows", Ours: float64(end[0].Rows), Theirs: map[string]float64{"in the middle": float64(runs[0].middle.Rows)}, Ratio: float64(end[0].Rows) / float64(runs[0].middle.Rows), Machine: machine},
		{Name: name + "memory", Unit: "MB", Ours: mb(end[0]), Theirs: map[string]float64{"in the middle": mb(runs[0].middle)}, Ratio: mb(end[0]) / mb(runs[0].middle), Machine: machine},
		{Name: name + "rows without a limit", Unit: "rows", Ours: float64(end[1].Rows), Theirs: map[string]float64{"in the middle": float64(runs[1].middle.Rows)}, Ratio: float64(end[1].Rows) / float64(runs[1].middle.Rows), Machine: machine},
		{Name: name + "memory without a limit", Unit: "MB", Ours: mb(end[1]), Theirs: map[string]float64{"in the middle": mb(runs[1].middle)}, Ratio: mb(end[1]) / mb(runs[1].middle), Machine: machine},
		{Name: name + "both trained", Unit: "events/s", Ours: float64(o.Rows) / seconds, Theirs: map[string]float64{}, Machine: machine},
	}, nil
}

// events is a batch of them: the ids of each kind, the clicks, and which of the distinct ids each is.
type events struct {
	from, to int
	clicks   []float32
	keys     []int64
	counts   []uint32
	at       [][]int32 // of each kind: of an event its id's place in keys
	places   map[int64]int32
}

// draw makes the events [from, to), of so many a day.
func (e *events) draw(from, to int, day float64) {
	if e.places == nil {
		e.places, e.at = map[int64]int32{}, make([][]int32, len(kinds)+1)
	}
	rng := rand.New(rand.NewPCG(30, uint64(from)))
	e.from, e.to = from, to
	e.clicks, e.keys, e.counts = e.clicks[:0], e.keys[:0], e.counts[:0]
	clear(e.places)
	for k := range e.at {
		e.at[k] = e.at[k][:0]
	}
	for i := from; i < to; i++ {
		logit := -1.
		for k, kind := range kinds {
			newest := i / kind.every
			age := int(rng.ExpFloat64() * kind.seen * day / float64(kind.every))
			id := uint64(newest - age%(newest+1))
			logit += normal(param.Mix(uint64(kind.slot), id))
			e.see(k, int64(uint64(kind.slot)<<48|id)) // as package fid lays them out
		}
		e.see(len(kinds), int64(len(kinds)+1)<<48) // the bias, which never goes
		click := float32(0)
		if rng.Float64() < 1/(1+math.Exp(-logit)) {
			click = 1
		}
		e.clicks = append(e.clicks, click)
	}
}

// see adds an id of an event.
func (e *events) see(kind int, key int64) {
	at, ok := e.places[key]
	if !ok {
		at = int32(len(e.keys))
		e.places[key] = at
		e.keys, e.counts = append(e.keys, key), append(e.counts, 0)
	}
	e.counts[at]++
	e.at[kind] = append(e.at[kind], at)
}

// normal makes a number of about a normal distribution of a hash: the sum of four uniform ones, scaled to variance 1.
func normal(h uint64) float64 {
	sum := h&0xffff + h>>16&0xffff + h>>32&0xffff + h>>48
	return (float64(sum)/65536 - 2) * math.Sqrt(3)
}

// month is a model that is trained on it.
type month struct {
	layout         *param.Layout
	cluster        *coordinator.Cluster
	client         *ps.Client
	rows           param.Rows
	values, grads  []float32
	update         param.Update
	scores, labels []float32
	middle         ps.TableStats
}

func (m *month) open(ctx context.Context) (err error) {
	if m.cluster, err = coordinator.Open(ctx, coordinator.Options{Layout: m.layout, NumShards: 2}); err != nil {
		return err
	}
	if m.client, err = m.cluster.Client(ctx, "month"); err != nil {
		return err
	}
	m.update = param.Update{Source: "month", Split: "0", LR: 1}
	_, err = m.client.Resume(ctx, m.update.Source, []string{m.update.Split})
	return err
}

func (m *month) close(ctx context.Context) (err error) {
	if m.client != nil {
		err = m.client.Close()
	}
	if m.cluster != nil {
		err = errors.Join(err, m.cluster.Close(ctx))
	}
	return err
}

// tables is what the table holds once everything is applied.
func (m *month) tables(ctx context.Context) (ps.TableStats, error) {
	if err := m.client.Flush(ctx); err != nil {
		return ps.TableStats{}, err
	}
	st, err := m.cluster.Stats(ctx)
	if err != nil {
		return ps.TableStats{}, err
	}
	return st.Tables[0], nil
}

// train predicts events, keeps every keep-th prediction where asked to, and pushes the gradients.
func (m *month) train(ctx context.Context, e *events, keep int, kept bool) error {
	n := len(e.keys)
	m.values, m.grads = slices.Grow(m.values[:0], n)[:n], slices.Grow(m.grads[:0], n)[:n]
	clear(m.grads)
	rows := &m.rows
	rows.Keys, rows.Values = append(rows.Keys[:0], e.keys), append(rows.Values[:0], m.values)
	if err := m.client.Lookup(ctx, rows); err != nil {
		return err
	}
	for i, click := range e.clicks {
		logit := float32(0)
		for _, at := range e.at {
			logit += m.values[at[i]]
		}
		p := float32(1 / (1 + math.Exp(-float64(logit))))
		for _, at := range e.at {
			m.grads[at[i]] += p - click
		}
		if kept && (e.from+i)%keep == 0 {
			m.scores, m.labels = append(m.scores, p), append(m.labels, click)
		}
	}
	u := &m.update
	u.From, u.To, u.NumRows, u.Time = int64(e.from), int64(e.to), e.to-e.from, int64(e.to)
	u.Keys, u.Counts, u.Grads = append(u.Keys[:0], e.keys), append(u.Counts[:0], e.counts), append(u.Grads[:0], m.grads)
	return m.client.Push(ctx, u)
}
