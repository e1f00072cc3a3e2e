package beam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/shuffle"
)

// A plan with shuffles becomes a Beam graph of a stage for each segment, with a GroupByKey between them:
//
//	tasks ─> feed ─┬─> pick ─> GroupByKey ─> group ─┬─> pick ─> ...
//	               └─> records                      └─> records
//
// Rows travel as Arrow batches of a partition, under the key "segment/shuffle/partition"; the grouping side sorts them again, on
// disk if need be, so that a bundle that is repeated gives the same. Such a plan ends, its bundles run to their end, and what
// one puts is Beam's until the bundle has succeeded.

// checkShuffles finds what cannot be run: some splits alone, and segments that begin with a shuffle and a source of their own.
func checkShuffles(plan *pipeline.Plan, o Options) error {
	for _, s := range plan.Shuffles() {
		if o.Splits != nil {
			return fmt.Errorf("beam: splits are named, and shuffle %q takes the rows of all: %w", s.Name, pipeline.ErrConfig)
		}
		for _, source := range plan.Segments[s.To].Sources() {
			if !isShuffle(plan, source.Name) {
				return fmt.Errorf("beam: shuffle %q is merged with source %q, which is no shuffle; the local runner can do that: %w", s.Name, source.Name, pipeline.ErrConfig)
			}
		}
	}
	return nil
}

func isShuffle(plan *pipeline.Plan, source string) bool {
	return slices.ContainsFunc(plan.Shuffles(), func(s pipeline.ShuffleInfo) bool { return s.Name == source })
}

// shuffled makes the Beam graph and returns the records of all executors.
func shuffled(s sdk.Scope, sp spec, plan *pipeline.Plan, tasks []task, elems [][]byte) sdk.PCollection {
	rows := make([]sdk.PCollection, len(plan.Segments))
	var records []sdk.PCollection
	for i := range plan.Segments {
		scope := s.Scope("segment " + strconv.Itoa(i))
		var mine [][]byte
		for k, t := range tasks {
			if t.Segment == i && !isShuffle(plan, t.Splits[0].Source) {
				mine = append(mine, elems[k])
			}
		}
		var record sdk.PCollection
		if len(mine) > 0 {
			rows[i], record = sdk.ParDo2(scope, &feedFn{sp}, sdk.Reshuffle(scope, sdk.CreateList(scope, mine)))
		} else {
			var in []sdk.PCollection
			for _, info := range plan.Shuffles() {
				if info.To == i {
					in = append(in, sdk.ParDo(scope, &pickFn{keyOf(info, -1)}, rows[info.From]))
				}
			}
			rows[i], record = sdk.ParDo2(scope, &groupFn{sp}, sdk.GroupByKey(scope, sdk.Flatten(scope, in...)))
		}
		records = append(records, record)
	}
	return sdk.Flatten(s, records...)
}

// keyOf is what rows of a partition are grouped by; a negative partition gives what the keys of all begin with.
func keyOf(info pipeline.ShuffleInfo, partition int) string {
	key := strconv.Itoa(info.To) + "/" + info.Name + "/"
	if partition >= 0 {
		key += strconv.Itoa(partition)
	}
	return key
}

// pickFn passes on the rows of one shuffle.
type pickFn struct{ Prefix string }

// ProcessElement implements the DoFn.
func (f *pickFn) ProcessElement(key string, message []byte, emit func(string, []byte)) {
	if strings.HasPrefix(key, f.Prefix) {
		emit(key, message)
	}
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
	return visit(ctx, f.Spec, func(r *runState, built *Built) error {
		return r.execute(ctx, built, t, nil, rows, records)
	})
}

// groupFn runs a partition of a segment that begins at shuffles.
type groupFn struct {
	// Spec describes which run it is; it travels as JSON.
	Spec spec
}

// ProcessElement sorts the rows of a partition and runs the segment with them; it emits as feedFn does.
func (f *groupFn) ProcessElement(ctx context.Context, key string, messages func(*[]byte) bool, rows func(string, []byte), records func([]byte)) error {
	return visit(ctx, f.Spec, func(r *runState, built *Built) (err error) {
		var info pipeline.ShuffleInfo
		partition := -1
		for _, s := range built.Plan.Shuffles() {
			if rest, ok := strings.CutPrefix(key, keyOf(s, -1)); ok {
				if partition, err = strconv.Atoi(rest); err != nil {
					return fmt.Errorf("beam: rows of partition %q: %w", key, err)
				}
				info = s
			}
		}
		if partition < 0 || partition >= info.Partitions {
			return fmt.Errorf("beam: there are rows of %q, which no shuffle of the plan has: %w", key, ErrPlan)
		}
		in, err := shuffle.New(info, pipeline.RunOptions{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		for message := []byte(nil); messages(&message); {
			if err := in.Receive(ctx, message); err != nil {
				return err
			}
		}
		if err := in.Done(); err != nil {
			return err
		}
		t := task{Index: -1, Segment: info.To, Lanes: 1, Splits: []pipeline.Split{{Source: info.Name, Name: info.Split(partition), End: pipeline.NoPosition}}}
		t.Worker = partition
		return r.execute(ctx, built, t, map[string]pipeline.Exchange{info.Name: in}, rows, records)
	})
}

// visit enters a run for the time of f, and keeps its error.
func visit(_ context.Context, s spec, f func(*runState, *Built) error) error {
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

// message is what an executor sends to a shuffle.
type message struct {
	key  string
	rows []byte
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
			case out <- message{keyOf(info, partition), rows}:
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
	opts := pipeline.RunOptions{
		Workers: t.Lanes, Deterministic: r.spec.Deterministic, Splits: t.Splits, Exchanges: exchanges,
		Env: t.env(built), Drain: r.drain, Stop: r.stop, Taken: r.counter(t.Segment).Add,
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
	for ended := false; !ended; {
		select {
		case m := <-out:
			rows(m.key, m.rows)
		case <-done:
			ended = true
		}
	}
	if err != nil {
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
