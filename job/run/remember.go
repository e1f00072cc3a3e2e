package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
)

// memories is what readers of this run want remembered of their splits ([pipeline.Rememberer]), on its way into the next
// snapshot. Its methods may overlap.
type memories struct {
	mu sync.Mutex
	of map[string]string // by key of worker state
}

// put is [pipeline.Env].Memory.
func (m *memories) put(split pipeline.SplitID, memory string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]string{}
	}
	m.of[ps.SourceState(split.Source, split.Split)] = memory
}

// stageStates is the [pipeline.StateStore] of a run: what stages with state keep of their splits lies beside the memories, goes
// into the same cuts and is handed on with the splits.
type stageStates struct {
	memories *memories
	state    func(ctx context.Context, key string) ([]byte, error) // of the shards
}

// Load implements [pipeline.StateStore].
func (s stageStates) Load(ctx context.Context, stage string, split pipeline.SplitID) (st pipeline.State, ok bool, err error) {
	b, err := s.state(ctx, ps.StageState(stage, split.Source, split.Split))
	if err != nil || b == nil {
		return st, false, err
	}
	return st, true, st.UnmarshalBinary(b)
}

// Put implements [pipeline.StateStore].
func (s stageStates) Put(stage string, states map[pipeline.SplitID]pipeline.State) {
	m := s.memories
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]string{}
	}
	for id, st := range states {
		m.of[ps.StageState(stage, id.Source, id.Split)] = string(st.Bytes())
	}
}

// forget is called before other splits are read: what is remembered of a split is its owner's to say.
func (m *memories) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.of)
}

// state is what a marker stores.
func (m *memories) state() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string][]byte, len(m.of))
	for key, memory := range m.of {
		out[key] = []byte(memory)
	}
	return out
}

// stageStates keeps the state of the run's stages.
func (t *trainer) stageStates() stageStates { return stageStates{&t.memories, t.shards.State} }

// recallAtOnce is how many splits are asked for at once.
const recallAtOnce = 16

// recall returns the splits of an assignment, of all that the source has, as they were when they were first taken up, and
// stores that where it is new, before anything is read.
func (t *trainer) recall(ctx context.Context, m *member, a ps.Assignment, all, mine []pipeline.Split) ([]pipeline.Split, error) {
	name := t.source().Name
	r, ok := t.source().Source.(pipeline.Rememberer)
	t.memories.forget()
	if !ok {
		return mine, nil
	}
	known := make(map[string]string, len(all))
	var mu sync.Mutex
	ask, asking := errgroup.WithContext(ctx)
	ask.SetLimit(recallAtOnce)
	for _, s := range all {
		ask.Go(func() error {
			b, err := t.shards.State(asking, ps.SourceState(name, s.Name))
			if err != nil {
				return fmt.Errorf("job: what is stored about split %q: %w", s.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if b != nil {
				known[s.Name] = string(b)
			}
			return nil
		})
	}
	if err := ask.Wait(); err != nil {
		return nil, err
	}
	splits, err := r.Recall(mine, known)
	if err != nil {
		return nil, err
	}
	applied, err := t.shards.Progress(ctx, name)
	if err != nil {
		return nil, err
	}
	found := false // a start that nobody could find again
	tell, telling := errgroup.WithContext(ctx)
	tell.SetLimit(recallAtOnce)
	for _, s := range splits {
		_, old := known[s.Name]
		if _, begun := applied[s.Name]; !old && !begun && s.Start > 0 {
			found = true
		}
		if s.Memory == known[s.Name] {
			continue
		}
		tell.Go(func() error {
			return m.store(telling, a.Generation, ps.SourceState(name, s.Name), []byte(s.Memory))
		})
	}
	if err := tell.Wait(); err != nil {
		return nil, fmt.Errorf("job: storing where the splits begin: %w", err)
	}
	if !found || t.cfg.PS.Durability == "wal" { // a log has it
		return splits, nil
	}
	if _, err := t.shards.Snapshot(ctx, ps.SnapshotOptions{}); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		t.log.Warn("where the splits begin is in no snapshot yet: a crash before the first one makes them start over", "err", err)
	}
	return splits, nil
}

// remember stores what is remembered of the splits of an assignment, before they are released. What it does not store is
// looked after less well later, and no more.
func (t *trainer) remember(ctx context.Context, m *member, a ps.Assignment) {
	tell, telling := errgroup.WithContext(ctx)
	tell.SetLimit(recallAtOnce)
	for key, memory := range t.memories.state() {
		tell.Go(func() error { return m.store(telling, a.Generation, key, memory) })
	}
	if err := tell.Wait(); err != nil {
		t.log.Debug("what is remembered of splits is not stored", "err", err)
	}
}

// addSplits adds to the splits that the job's source is known to have, and returns those that are new.
func (t *trainer) addSplits(all []pipeline.Split) (added []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range all {
		if !slices.Contains(t.splits, s.Name) {
			added = append(added, s.Name)
		}
	}
	t.splits = slices.Concat(t.splits, added)
	return added
}

// growsEvery is how often the source is to be asked for new splits; 0: never.
func (t *trainer) growsEvery() time.Duration {
	if g, ok := t.source().Source.(pipeline.Growing); ok {
		return g.GrowsEvery()
	}
	return 0
}

// watchGrowth reports to the coordinator splits that the source has got, until ctx ends. Every worker does, as none is
// given what it does not see.
func (t *trainer) watchGrowth(ctx context.Context, m *member) {
	every := t.growsEvery()
	if every == 0 {
		return
	}
	told := map[string]bool{}
	m.mu.Lock()
	for _, s := range m.who.Splits {
		told[s] = true
	}
	m.mu.Unlock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all, err := t.plan.Splits(ctx)
		if err != nil {
			t.log.Debug("looking for new splits", "err", err) // reading says what is wrong, and has the patience
			continue
		}
		var added []string
		for _, s := range all {
			if !told[s.Name] {
				added = append(added, s.Name)
			}
		}
		if len(added) == 0 {
			continue
		}
		if err := m.grown(ctx, added); err != nil {
			t.log.Warn("new splits cannot be reported to the coordinator; trying again", "splits", len(added), "err", err)
			continue
		}
		for _, s := range added {
			told[s] = true
		}
		if a, _, _, _ := m.current(); !a.Leader { // who speaks for all
			continue
		}
		t.notice("the source has %d new split(s), which are read from now on: %q", len(added), added)
		t.log.Info("the source has new splits", "splits", len(added), "first", added[0])
	}
}

// sourceFault reports whether an error is the source's, so that what was trained is as good as before it.
func sourceFault(err error) bool {
	if _, ok := errors.AsType[*pipeline.GapError](err); ok {
		return true
	}
	for _, of := range []error{
		ps.ErrClosed, ps.ErrUnreachable, ps.ErrNotReady, ps.ErrMismatch, ps.ErrFenced, ps.ErrRolledBack, ps.ErrNoSpace, ps.ErrFull, ps.ErrCorrupt, ps.ErrLayout,
	} {
		if errors.Is(err, of) {
			return false
		}
	}
	return errors.Is(err, pipeline.ErrUnavailable) || errors.Is(err, pipeline.ErrBadData)
}

// untrained reports that a run of its own shards has trained nothing that its newest snapshot, if there is one, has not: another would hold
// nothing but the features of a job whose first try went wrong, and refuse the next one's, or what is known of the files of one that went wrong later.
func (t *trainer) untrained(ctx context.Context) (bool, error) {
	if t.cfg.PS.Remote() || t.rows > 0 {
		return false, nil
	}
	newest, err := t.shards.Newest(ctx)
	if err != nil || newest != nil {
		return err == nil, err
	}
	applied, err := t.progress(ctx)
	return rowsOf(applied) == 0, err
}

// besides are the errors of outputs but for those that a run has failed with.
func besides(cause, outputs error) []error {
	return slices.DeleteFunc(failure.Flatten(outputs), func(err error) bool {
		return errors.Is(cause, cmp.Or(errors.Unwrap(err), err)) // the executor names the output otherwise
	})
}

// rescue stores a last snapshot of what was trained before the run failed, if this run is the last. The failure stays
// what the run ends with.
func (t *trainer) rescue(ctx context.Context, m *member, cause error) error {
	if _, gap := errors.AsType[*pipeline.GapError](cause); gap {
		t.gap.Store(true)
	}
	if !sourceFault(cause) || ctx.Err() != nil {
		return cause
	}
	if err := t.giveBack(ctx, m); err != nil {
		t.log.Error("what belongs to the source before is lost", "err", err)
	}
	if none, err := t.untrained(ctx); err == nil && none {
		return cause
	}
	if err := t.outputs.Behind(); err != nil { // what is trained again is predicted as it was
		t.notice("training has failed, and an output could not store what was trained since the last snapshot, so that is trained again")
		return errors.Join(append([]error{cause}, besides(cause, err)...)...)
	}
	t.notice("training has failed; what was trained before is kept")
	drained := t.drained
	err := t.leave(ctx, m)
	t.drained = drained
	if err != nil {
		t.log.Error("no snapshot of what was trained before the source failed", "err", err)
		return errors.Join(cause, err)
	}
	return cause
}
