package beam

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/rtrackers/offsetrange"

	"github.com/monolith-go/monolith/pipeline"
)

// task is one element of the Beam graph: splits that one executor reads.
type task struct {
	// Index numbers the tasks of a run from 0; executors are found by it.
	Index int
	// Segment is that of the plan, from 0.
	Segment int
	// Worker is the number of the first worker of the task.
	Worker int
	// Lanes is the number of workers.
	Lanes  int
	Splits []pipeline.Split
}

// dealAll makes the tasks of a run: those of every segment that has some of the splits. Errors: [pipeline.ErrConfig].
func dealAll(plan *pipeline.Plan, splits []pipeline.Split, o Options, c capability) ([]task, error) {
	own, err := plan.Deal(splits)
	if err != nil {
		return nil, fmt.Errorf("beam: %w", err)
	}
	var out []task
	for i, splits := range own {
		if len(splits) == 0 {
			continue
		}
		for _, t := range deal(splits, o, c) {
			t.Index, t.Segment = len(out), i
			out = append(out, t)
		}
	}
	return out, nil
}

// deal makes the tasks of a segment, as few as one and as many as there are splits.
func deal(splits []pipeline.Split, o Options, c capability) []task {
	splits = slices.Clone(splits)
	slices.SortFunc(splits, func(a, b pipeline.Split) int { return a.ID().Compare(b.ID()) })
	if o.Deterministic {
		return []task{{Lanes: o.Workers, Splits: splits}}
	}
	n := len(splits)
	if c.oneProcess {
		n = min(n, o.Workers)
	}
	tasks := make([]task, n)
	for i := range tasks {
		tasks[i] = task{Index: i, Worker: i, Lanes: 1}
	}
	for i, s := range splits {
		t := &tasks[i%n]
		t.Splits = append(t.Splits, s)
	}
	return tasks
}

func (t task) encode() ([]byte, error) { return json.Marshal(t) }

// decodeTask is the inverse of encode. It accepts no task that an executor could not run.
func decodeTask(b []byte) (task, error) {
	var t task
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("beam: task %q: %w", b, err)
	}
	if t.Index < 0 || t.Segment < 0 || t.Worker < 0 || t.Lanes < 1 || len(t.Splits) == 0 {
		return t, fmt.Errorf("beam: task %q: index %d, worker %d, %d lanes, %d splits: %w", b, t.Index, t.Worker, t.Lanes, len(t.Splits), pipeline.ErrConfig)
	}
	return t, nil
}

// restriction is the account of a task: the positions of its split or, when it has several, the rows of all. One unit at
// the end stands for the flush, so that an executor at the end of its data is not yet done. The end is open where the
// amount of work is not known.
func (t task) restriction() offsetrange.Restriction {
	open := offsetrange.Restriction{Start: 0, End: math.MaxInt64}
	if len(t.Splits) != 1 {
		return open
	}
	s := t.Splits[0]
	open.Start = int64(max(s.Start, 0))
	if s.End == pipeline.NoPosition || s.End < s.Start || s.End == math.MaxInt64 {
		return open
	}
	return offsetrange.Restriction{Start: open.Start, End: int64(s.End) + 1}
}

// account is how far a task is, in the unit of its restriction: everything below is done.
func (t task) account(at map[pipeline.SplitID]pipeline.Progress) int64 {
	if len(t.Splits) == 1 {
		p, ok := at[t.Splits[0].ID()]
		if !ok {
			return int64(max(t.Splits[0].Start, 0))
		}
		return int64(max(p.Position, 0))
	}
	var rows int64
	for _, p := range at {
		rows += p.Rows
	}
	return rows
}

// env numbers the workers of the task among those of the run.
func (t task) env(built *Built) func(worker int) *pipeline.Env {
	return func(worker int) *pipeline.Env {
		worker += t.Worker
		if built.Env == nil {
			return &pipeline.Env{Worker: worker}
		}
		return built.Env(worker)
	}
}
