package beam

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/shuffle"
)

// A plan with shuffles becomes a Beam graph of a stage for each segment, with a GroupByKey between them:
//
//	tasks ─> feed ─┬─> pick ─┬─> GroupByKey ─> group ─┬─> pick ─> ...
//	               └─> records                        └─> records
//	tasks of a segment that ─┘
//	reads sources as well
//
// Rows travel as Arrow batches of a partition ([parcel]); the grouping side sorts them again, on disk if need be, so that a bundle that
// is repeated gives the same. A group is a partition, or in deterministic mode the whole segment, because the order in which
// its splits are read is a function of the positions of all (invariant 6). Such a plan ends, its bundles run to their end, and what
// one puts is Beam's until the bundle has succeeded.

// checkShuffles finds what cannot be run: some splits alone, and sources without an end, whose bundles nothing would follow.
func checkShuffles(plan *pipeline.Plan, o Options) error {
	shuffles := plan.Shuffles()
	if len(shuffles) == 0 {
		return nil
	}
	if o.Splits != nil {
		return fmt.Errorf("beam: splits are named, and shuffle %q takes the rows of all: %w", shuffles[0].Name, pipeline.ErrConfig)
	}
	for _, segment := range plan.Segments {
		if !segment.Bounded() {
			return fmt.Errorf("beam: source %q has no end, and a plan with a shuffle (%q) runs to its end; give them plans of their own: %w",
				segment.Sources()[0].Name, shuffles[0].Name, pipeline.ErrConfig)
		}
	}
	return nil
}

// shuffled makes the Beam graph and returns the records of all executors.
func shuffled(s sdk.Scope, sp spec, plan *pipeline.Plan, tasks []task) (sdk.PCollection, error) {
	rows := make([]sdk.PCollection, len(plan.Segments))
	var records []sdk.PCollection
	for i := range plan.Segments {
		scope := s.Scope("segment " + strconv.Itoa(i))
		from, names := map[int]bool{}, map[string]bool{}
		for _, info := range plan.Shuffles() {
			if info.To == i {
				from[info.From], names[info.Name] = true, true
			}
		}
		own, err := ownTasks(tasks, i, names, sp.Deterministic)
		if err != nil {
			return sdk.PCollection{}, err
		}
		var record sdk.PCollection
		if len(from) == 0 {
			rows[i], record = sdk.ParDo2(scope, &feedFn{sp}, sdk.Reshuffle(scope, sdk.CreateList(scope, own)))
		} else {
			var in []sdk.PCollection
			for _, segment := range slices.Sorted(maps.Keys(from)) {
				in = append(in, sdk.ParDo(scope, &pickFn{To: i}, rows[segment]))
			}
			if len(own) > 0 {
				in = append(in, sdk.ParDo(scope, &handFn{To: i, Together: sp.Deterministic}, sdk.CreateList(scope, own)))
			}
			rows[i], record = sdk.ParDo2(scope, &groupFn{sp, i, len(own)}, sdk.GroupByKey(scope, sdk.Flatten(scope, in...)))
		}
		records = append(records, record)
	}
	return sdk.Flatten(s, records...), nil
}

// ownTasks encodes the tasks of a segment: what it reads of sources, and the partitions of its shuffles where one task has all.
func ownTasks(tasks []task, segment int, shuffles map[string]bool, together bool) (own [][]byte, err error) {
	for _, t := range tasks {
		if t.Segment != segment {
			continue
		}
		if !together {
			t.Splits = slices.DeleteFunc(slices.Clone(t.Splits), func(sp pipeline.Split) bool { return shuffles[sp.Source] })
		}
		if len(t.Splits) == 0 {
			continue
		}
		t.Worker = len(own) // partitions come behind them
		b, err := t.encode()
		if err != nil {
			return nil, fmt.Errorf("beam: task %d: %w", t.Index, err)
		}
		own = append(own, b)
	}
	return own, nil
}

// prefix is what the keys of a segment begin with.
func prefix(segment int) string { return strconv.Itoa(segment) + "/" }

// parcel is what comes to a segment that begins with shuffles: the rows of a batch that are of one partition, or a task.
//
//	0 | task                                                             a task
//	1 | partition uvarint | length uvarint | name of the shuffle | rows   rows, as [shuffle.Sender] makes them
type parcel struct {
	task      []byte
	shuffle   string
	partition int
	rows      []byte
}

func (p parcel) encode() []byte {
	if p.task != nil {
		return append([]byte{0}, p.task...)
	}
	b := make([]byte, 0, 1+2*binary.MaxVarintLen64+len(p.shuffle)+len(p.rows))
	b = binary.AppendUvarint(append(b, 1), uint64(p.partition))
	b = append(binary.AppendUvarint(b, uint64(len(p.shuffle))), p.shuffle...)
	return append(b, p.rows...)
}

// decodeParcel is the inverse of encode; what it returns shares the memory of b.
func decodeParcel(b []byte) (p parcel, err error) {
	bad := fmt.Errorf("beam: parcel of %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	if len(b) == 0 || b[0] > 1 {
		return p, bad
	}
	kind, b := b[0], b[1:]
	if kind == 0 {
		return parcel{task: b}, nil
	}
	partition, n := binary.Uvarint(b)
	if n <= 0 || partition > math.MaxInt32 {
		return p, bad
	}
	b = b[n:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return p, bad
	}
	b = b[n:]
	return parcel{shuffle: string(b[:length]), partition: int(partition), rows: b[length:]}, nil
}

// send makes the key and the value of rows of a shuffle.
func send(info pipeline.ShuffleInfo, partition int, rows []byte, together bool) message {
	key := prefix(info.To)
	if !together {
		key += info.Name + "/" + strconv.Itoa(partition)
	}
	return message{key, parcel{shuffle: info.Name, partition: partition, rows: rows}.encode()}
}

// pickFn passes on what is for one segment.
type pickFn struct{ To int }

// ProcessElement implements the DoFn.
func (f *pickFn) ProcessElement(key string, parcel []byte, emit func(string, []byte)) {
	if strings.HasPrefix(key, prefix(f.To)) {
		emit(key, parcel)
	}
}

// handFn gives the tasks of a segment that begins with shuffles groups: each its own, or all one.
type handFn struct {
	To       int
	Together bool
}

// ProcessElement implements the DoFn.
func (f *handFn) ProcessElement(elem []byte, emit func(string, []byte)) error {
	t, err := decodeTask(elem)
	if err != nil {
		return err
	}
	key := prefix(f.To)
	if !f.Together { // no shuffle has an empty name
		key += "/" + strconv.Itoa(t.Index)
	}
	emit(key, parcel{task: elem}.encode())
	return nil
}

// feedFn runs a task of a segment that begins at sources.
type feedFn struct {
	// Spec describes which run it is; it travels as JSON.
	Spec spec
}

// ProcessElement runs the task to its end; it emits the rows of shuffles that the segment ends in, and a record.
func (f *feedFn) ProcessElement(ctx context.Context, elem []byte, rows func(string, []byte), records func([]byte)) error {
	t, err := decodeTask(elem)
	if err != nil {
		return err
	}
	return visit(f.Spec, func(r *runState, built *Built) error {
		return r.execute(ctx, built, t, nil, rows, records)
	})
}

// groupFn runs a group of a segment that begins at shuffles: a partition, a task, or all of the segment.
type groupFn struct {
	// Spec describes which run it is; it travels as JSON.
	Spec spec
	// Segment is that of the plan, and Own how many tasks it has: workers of partitions are numbered behind theirs.
	Segment, Own int
}

// ProcessElement sorts the rows of the group and runs the segment with them; it emits as feedFn does.
func (f *groupFn) ProcessElement(ctx context.Context, _ string, parcels func(*[]byte) bool, rows func(string, []byte), records func([]byte)) error {
	return visit(f.Spec, func(r *runState, built *Built) (err error) {
		g := group{fn: f, built: built, in: map[string]pipeline.Exchange{}}
		defer func() { err = errors.Join(err, g.close()) }()
		for b := []byte(nil); parcels(&b); {
			if err := g.take(ctx, b); err != nil {
				return err
			}
		}
		if err := g.done(); err != nil {
			return err
		}
		return r.execute(ctx, built, g.task, g.in, rows, records)
	})
}

// group is what has come of one group.
type group struct {
	fn    *groupFn
	built *Built
	task  task
	in    map[string]pipeline.Exchange
}

// exchange returns the place for the rows of a shuffle, and its description.
func (g *group) exchange(name string) (*shuffle.Rows, pipeline.ShuffleInfo, error) {
	shuffles := g.built.Plan.Shuffles()
	i := slices.IndexFunc(shuffles, func(s pipeline.ShuffleInfo) bool { return s.Name == name && s.To == g.fn.Segment })
	if i < 0 {
		return nil, pipeline.ShuffleInfo{}, fmt.Errorf("beam: there are rows of shuffle %q, which segment %d of the plan does not begin with: %w", name, g.fn.Segment, ErrPlan)
	}
	if x := g.in[name]; x != nil {
		return x.(*shuffle.Rows), shuffles[i], nil
	}
	rows, err := shuffle.New(shuffles[i], pipeline.RunOptions{})
	if err != nil {
		return nil, shuffles[i], err
	}
	g.in[name] = rows
	return rows, shuffles[i], nil
}

// take takes a parcel.
func (g *group) take(ctx context.Context, b []byte) error {
	p, err := decodeParcel(b)
	if err != nil {
		return err
	}
	if p.task != nil {
		g.task, err = decodeTask(p.task)
		return err
	}
	rows, info, err := g.exchange(p.shuffle)
	if err != nil {
		return err
	}
	if p.partition >= info.Partitions {
		return fmt.Errorf("beam: there are rows of partition %d of shuffle %q, which has %d: %w", p.partition, info.Name, info.Partitions, ErrPlan)
	}
	if !g.fn.Spec.Deterministic && len(g.task.Splits) == 0 {
		g.task = task{
			Index: -1, Segment: info.To, Worker: g.fn.Own + p.partition, Lanes: 1,
			Splits: []pipeline.Split{{Source: info.Name, Name: info.Split(p.partition), End: pipeline.NoPosition}},
		}
		for _, other := range g.built.Plan.Shuffles() {
			if other.Name == info.Name {
				break
			}
			if other.To == info.To {
				g.task.Worker += other.Partitions
			}
		}
	}
	return rows.Receive(ctx, p.rows)
}

// done says that all parcels were taken.
func (g *group) done() error {
	for _, s := range g.built.Plan.Shuffles() { // also those that no row came from
		if s.To != g.fn.Segment || !slices.ContainsFunc(g.task.Splits, func(sp pipeline.Split) bool { return sp.Source == s.Name }) {
			continue
		}
		rows, _, err := g.exchange(s.Name)
		if err == nil {
			err = rows.Done()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *group) close() error {
	var errs []error
	for _, x := range g.in {
		errs = append(errs, x.(*shuffle.Rows).Close())
	}
	return errors.Join(errs...)
}

// visit enters a run for the time of f, and keeps its error.
func visit(s spec, f func(*runState, *Built) error) error {
	r, err := process.enter(s)
	if err != nil {
		return err
	}
	defer process.leave(r)
	built, err := r.graph()
	if err == nil {
		err = f(r, built)
	}
	if err != nil {
		r.failed(err)
	}
	return err
}

// message is a [parcel] with its key.
type message struct {
	key    string
	parcel []byte
}

// execute runs a task from beginning to end within a bundle. in are the shuffles that the segment begins with.
func (r *runState) execute(ctx context.Context, built *Built, t task, in map[string]pipeline.Exchange, rows func(string, []byte), records func([]byte)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	exchanges := map[string]pipeline.Exchange{}
	maps.Copy(exchanges, in)
	// Only this goroutine may emit.
	out := make(chan message)
	feeds := false
	for _, info := range built.Plan.Shuffles() {
		if info.From != t.Segment {
			continue
		}
		feeds = true
		sender, err := shuffle.NewSender(info, func(ctx context.Context, partition int, rows []byte) error {
			select {
			case out <- send(info, partition, rows, r.spec.Deterministic):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			return err
		}
		exchanges[info.Name] = sender
	}
	taken, mine := r.counter(t.Segment), atomic.Int64{}
	opts := pipeline.RunOptions{
		Workers: t.Lanes, Deterministic: r.spec.Deterministic, Splits: t.Splits, Exchanges: exchanges, Interleave: r.spec.Interleave,
		Env: t.env(built), Drain: r.drain, Stop: r.stop, IdleEvery: time.Duration(r.spec.IdleEvery),
		Taken: func(rows int64) int64 { mine.Add(rows); return taken.Add(rows) },
	}
	if !feeds {
		opts.MaxRows, opts.Enough = r.spec.MaxRows, r.enough(t.Segment)
	}
	var stats pipeline.RunStats
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if in != nil && r.ending() { // the rows that were put are not all
			stats = pipeline.Sum()
			stats.Drained = true
			return
		}
		stats, err = built.Plan.Segments[t.Segment].Run(ctx, opts)
	}()
	defer func() { // Beam's emitters panic where what is downstream fails, and the caller closes what the executor reads
		cancel(nil)
		<-done
	}()
	for ended := false; !ended; {
		select {
		case m := <-out:
			rows(m.key, m.parcel)
		case <-done:
			ended = true
		}
	}
	if err != nil {
		taken.Add(-mine.Load()) // who repeats the bundle takes them again
		return err
	}
	rec := record{Run: r.spec.Run, Task: t.Index, Segment: t.Segment, Stats: stats}
	for id, p := range stats.Splits {
		rec.Splits = append(rec.Splits, splitProgress{id, p})
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("beam: statistics of segment %d: %w", t.Segment, err)
	}
	records(b)
	return nil
}
