package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// maxSetbacks is how often in a row a run lets the shards go back without any example being trained in between.
const maxSetbacks = 10

// elsewhereSettle is for how long after a failure of executors elsewhere the coordinator may still say that the shards have gone back,
// which explains it.
const elsewhereSettle = 2 * time.Second

// noAnswer is after how long the user is notified that the source does not answer.
const noAnswer = 5 * time.Second

// train works as a member of the job's workers until the job is finished or the run is drained.
func (t *trainer) train(ctx context.Context) (*result.TrainResult, error) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); t.monitor.run(stop) }()
	defer func() { close(stop); <-done }()

	late := time.AfterFunc(noAnswer, func() { t.notice("no answer from %v yet; trying again", t.source().Source) })
	err := t.know(ctx)
	late.Stop()
	if err != nil {
		return nil, fault.Unavailable(err)
	}
	if err := t.sayWhatIsRead(ctx); err != nil {
		return nil, fault.Unavailable(err)
	}
	t.sayWhoWaits()
	t.sayWhatIsTwice()
	who := ps.JoinOptions{Worker: t.worker, Source: wiring.SourceOf(t.plan), Plan: t.plan.Hash(), Single: t.cfg.Deterministic, Splits: t.known.names}
	lease := time.Duration(0)
	if t.cfg.PS.Remote() {
		lease = time.Duration(t.cfg.PS.Lease)
	}
	m, err := enrol(ctx, t.shards, who, lease, t.log)
	if err != nil {
		return nil, fault.Unavailable(err)
	}
	defer m.close()
	var acks sync.WaitGroup
	defer acks.Wait()
	quit := make(chan struct{})
	defer close(quit)
	acks.Go(func() { t.acknowledgeAll(ctx, m, quit) })
	watch, end := context.WithCancel(ctx)
	defer end()
	acks.Go(func() { t.watchGrowth(watch, m) })

	t.countShards(ctx)
	if err := t.follow(ctx, m); err != nil {
		return nil, fault.Unavailable(t.rescue(ctx, m, err))
	}
	return t.result(ctx)
}

// follow does what the coordinator asks for.
func (t *trainer) follow(ctx context.Context, m *member) error {
	handled, setbacks, before := uint64(0), 0, int64(-1)
	for {
		a, version, ok, err := m.next(ctx, t.opts.Drain, handled)
		if err != nil {
			return err
		}
		if !ok {
			return t.leave(ctx, m)
		}
		again := false
		switch a.Task {
		case ps.StandBy:
			err = m.accept(ctx, a)
		case ps.Work:
			err = t.work(ctx, m, a, version)
		case ps.Conclude:
			err = t.conclude(ctx, m, a)
		case ps.Finished:
			_, err := m.leave(context.WithoutCancel(ctx))
			return err
		}
		if err != nil {
			if t.rows > before {
				setbacks, before = 0, t.rows
			}
			if setbacks++; setbacks > maxSetbacks {
				return err
			}
			if again, err = t.recover(ctx, m, a, err); err != nil {
				return err
			}
		}
		if t.drained {
			return t.leave(ctx, m)
		}
		if !again {
			handled = version
		}
	}
}

// recover decides what an error of working means. again: the same work is to be done again at once; otherwise something
// else is, as soon as the coordinator says so.
func (t *trainer) recover(ctx context.Context, m *member, a ps.Assignment, err error) (again bool, _ error) {
	switch {
	case ctx.Err() != nil:
		return false, err
	case errors.Is(err, ps.ErrRolledBack):
		before := t.numShards
		if t.countShards(ctx); before > 0 && before != t.numShards {
			t.notice("there are %d shards now, %d before; this worker goes on with them", t.numShards, before)
			t.log.Info("the number of shards has changed", "from", before, "to", t.numShards, "generation", a.Generation)
			break
		}
		t.notice("the shards have gone back to an earlier state; this worker goes back with them")
		t.log.Warn("the shards have gone back", "generation", a.Generation, "err", err)
	case errors.Is(err, ps.ErrTorn), errors.Is(err, ps.ErrGap):
		// A shard has lost something without anybody noticing: all go back to where they agreed.
		t.notice("the shards do not fit together any more; going back to the last snapshot")
		return false, t.shards.RollBack(ctx, a.Generation, err.Error())
	case errors.Is(err, ps.ErrFenced), errors.Is(err, pipeline.ErrFenced):
		// A split was given to another process: in order, which the coordinator will say too, or because this worker is
		// thought to be dead.
		if why := m.expelled(ctx); why != nil {
			return false, why
		}
		if err := m.tell(ctx, ps.Report{Generation: a.Generation, Phase: a.Phase}); err != nil {
			return false, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		return true, nil
	default:
		return false, err
	}
	return false, nil
}

// countShards takes note of how many shards there are in other processes. Where they do not answer it stays as it was: who asks them next reports that.
func (t *trainer) countShards(ctx context.Context) {
	if remote, is := t.shards.(*rpc.Remote); is {
		if n, err := remote.NumShards(ctx); err == nil {
			t.numShards = n
		}
	}
}

// source is what the job trains on.
func (t *trainer) source() pipeline.SourceNode { return t.plan.Sources()[0] }

// progress is what all shards have applied of the splits of the job's source. Shards remember those of sources before too.
func (t *trainer) progress(ctx context.Context) (map[string]ps.Progress, error) {
	progress, err := t.shards.Progress(ctx, t.source().Name)
	if err != nil {
		return nil, err
	}
	return t.ownOf(progress), nil
}

// ownOf leaves out what is not of the job's source.
func (t *trainer) ownOf(progress map[string]ps.Progress) map[string]ps.Progress {
	if _, stream := t.cfg.Source.Stream(); stream {
		t.mu.Lock()
		splits := t.splits
		t.mu.Unlock()
		return only(progress, splits)
	}
	return only(progress, t.known.source())
}

// stepOptions are those of a step that trains. lr is the factor on learning rates that was decided.
func (t *trainer) stepOptions(lr float32) trainstep.StepOptions {
	o := trainstep.StepOptions{Seed: t.cfg.Seed, Identities: t.known.identities(), LR: lr, Progressive: progressive(t.cfg), Trained: t.trained, ReferenceBatch: t.reference}
	if t.cfg.PS.Remote() && !t.cfg.Deterministic { // others train on the same source
		o.TrainedEvery = trainedEvery
	}
	return o
}

// trainedEvery is after how many batches of this process others' examples are counted again, where the learning rates go by all.
const trainedEvery = 64

// trained is how many examples of each split all shards have applied: of the job's source, also of splits that are there no more, and of its history.
func (t *trainer) trained(ctx context.Context) (map[pipeline.SplitID]int64, error) {
	out := map[pipeline.SplitID]int64{}
	for _, source := range []string{t.source().Name, spec.HistoryNode} {
		progress, err := t.shards.Progress(ctx, source)
		if err != nil {
			return nil, err
		}
		for split, p := range progress {
			out[pipeline.SplitID{Source: source, Split: split}] = p.Rows
		}
	}
	return out, nil
}

// applied counts the examples of the job's source that all shards have applied.
func (t *trainer) applied(ctx context.Context) (int64, error) {
	progress, err := t.progress(ctx)
	return rowsOf(progress), err
}

func only(progress map[string]ps.Progress, splits []string) map[string]ps.Progress {
	own := make(map[string]ps.Progress, len(splits))
	for _, split := range splits {
		if p, ok := progress[split]; ok {
			own[split] = p
		}
	}
	return own
}

func rowsOf(progress map[string]ps.Progress) int64 {
	n := int64(0)
	for _, p := range progress {
		n += p.Rows
	}
	return n
}

// placesOf names how far the splits of a source were read.
func placesOf(progress map[string]ps.Progress) string {
	h := sha256.New()
	for _, split := range slices.Sorted(maps.Keys(progress)) {
		_, _ = fmt.Fprintf(h, "%q %d\n", split, progress[split].Position)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// upTo is the epoch that the phase ends with.
func (t *trainer) upTo() int {
	switch {
	case t.state.Stopped: // files that are new are read as often as the others were
		return t.state.Epochs
	case (evaluatesEpochs(t.cfg) || t.takesTurns() || t.takesUp()) && t.state.Epochs < t.cfg.Epochs:
		return t.state.Epochs + 1
	}
	return t.cfg.Epochs
}

// takesTurns reports whether some splits are read after others have ended, so that each epoch has to end before the next.
func (t *trainer) takesTurns() bool {
	_, stream := t.cfg.Source.Stream()
	return t.cfg.Source.Bounded() && !stream && len(t.known.names) > t.cfg.Train.Interleave
}

// takesUp reports whether splits have got more in the midst of an epoch, which the next one is to have: it begins when they are looked at again. Several workers
// may not have seen the same of them, and continue to the end with what they had.
func (t *trainer) takesUp() bool { return !t.cfg.PS.Remote() && t.known.holdsBack() }

// work trains on the splits of an assignment until they end, the assignment changes or the run is drained.
func (t *trainer) work(ctx context.Context, m *member, a ps.Assignment, version uint64) (err error) {
	if err := t.know(ctx); err != nil { // the shards may have gone back to a state that knew less
		return err
	}
	if t.state, err = t.restore(ctx, m, a); err != nil {
		return err
	}
	upTo := t.upTo()
	step := t.stepOptions(t.state.LR)
	step.Observe = t.monitor.observe
	plan, err := wiring.TrainGraph(t.cfg, t.model, t.reading(upTo), t.clientOf(a.Generation), &t.outputs, step)
	if err != nil {
		return err
	}
	all, splits, err := t.pick(ctx, plan, a.Splits)
	if err != nil {
		return err
	}
	if splits, err = t.recall(ctx, m, a, all, splits); err != nil {
		return err
	}
	applied, err := t.progress(ctx)
	if err != nil {
		return err
	}
	before := rowsOf(applied)
	if err := m.accept(ctx, a); err != nil {
		return err
	}
	t.log.Debug("working", "generation", a.Generation, "phase", a.Phase, "splits", a.Splits)
	maxRows := t.cfg.Train.MaxExamples
	if maxRows > 0 && before >= maxRows && len(t.cfg.Outputs) == 0 { // outputs may lack some of it
		return m.tell(ctx, ps.Report{Generation: a.Generation, Phase: a.Phase, Done: a.Splits})
	}
	ownRows := maxRows // a runner counts what its splits have
	if maxRows > 0 {
		ownRows -= before - rowsOf(only(applied, a.Splits))
	}
	t.outputs.Found = nil
	if before == 0 { // otherwise what they have was trained on before
		t.outputs.Found = t.foundRows()
	}
	t.monitor.begin(t.glance(upTo), before)
	if t.cfg.PS.Remote() { // others train on the same source
		t.monitor.follow(m.total(before))
	}
	if t.cfg.Deterministic {
		maxRows = 0 // one worker counts for itself, exactly
	}
	ended, enough, stop := m.until(version, maxRows, func() (int64, error) { return t.applied(ctx) })
	defer stop()
	again := recipe{Job: t.cfg.Raw(), UpTo: upTo, LR: t.state.LR, Generation: a.Generation, Worker: t.worker, Backfill: t.past != nil}
	stats, err := t.run(ctx, m, a.Generation, plan, again, pipeline.RunOptions{
		Workers: t.cfg.Train.Workers, Deterministic: t.cfg.Deterministic, Interleave: t.cfg.Train.Interleave, MaxRows: ownRows, Splits: splits,
		Drain: t.opts.Drain, Stop: ended, Enough: enough,
		Env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: t.log, Hooks: runHooks(t.monitor, t.hooks), BadRows: t.bad.policy, Memory: t.memories.put, State: t.stageStates()}
		},
	})
	if t.elsewhere() {
		if stats, err = t.ofElsewhere(ctx, m, version, a.Splits, applied, stats, err); err != nil {
			return err
		}
	}
	t.heldOut += stats.LeftOut
	t.leaveOut(stats)
	if t.rows, t.steps = t.rows+stats.Rows, t.steps+stats.Batches; t.rows > 0 {
		t.former = nil
	}
	t.remember(ctx, m, a) // no marker comes by any more before the splits are released
	if err != nil {
		return err
	}
	if err := t.nothingGood(ctx, before, stats); err != nil && (!stats.Drained || closed(t.opts.Drain)) {
		return err
	}
	r := ps.Report{Generation: a.Generation, Phase: a.Phase}
	switch {
	case stats.Drained && closed(t.opts.Drain):
		t.drained = true
		t.left += stats.Left
	case stats.Drained:
		// The splits are given back; some of them may come again.
	default:
		r.Done = a.Splits
	}
	return m.tell(ctx, r)
}

// foundRows returns what notifies the user, once for each output, that it has rows although nothing was trained: a run that begins
// again does not write them again.
func (t *trainer) foundRows() func(output string) {
	var mu sync.Mutex
	told := map[string]bool{}
	return func(output string) {
		mu.Lock()
		defer mu.Unlock()
		if !told[output] {
			told[output] = true
			t.notice("output %s has rows of this source from a run before, which are not written again; give it another place, or remove them, to have those of this run", output)
		}
	}
}

// nothingGood is the error of a run that found only bad records, while nobody else has found better ones since there were
// so many examples. It comes before a snapshot is taken. Errors: [ErrBadRows].
func (t *trainer) nothingGood(ctx context.Context, before int64, stats pipeline.RunStats) error {
	bad := t.bad.guard.nothing(stats)
	if bad == nil {
		return nil
	}
	after, err := t.applied(ctx)
	if err != nil || after > before {
		return err
	}
	return bad
}

// leaveOut counts the bad rows of a run.
func (t *trainer) leaveOut(stats pipeline.RunStats) {
	t.badRows = pipeline.Sum(pipeline.RunStats{BadRows: t.badRows}, stats).BadRows
}

// elsewhere reports whether executors may be in other processes.
func (t *trainer) elsewhere() bool { return t.cfg.Runner != spec.RunnerLocal && t.cfg.PS.Remote() }

// ofElsewhere completes what is known of a run whose executors are in other processes. What they did is what the shards have applied
// since, and why they failed is seen by what the coordinator wants now: their errors come back as text.
func (t *trainer) ofElsewhere(ctx context.Context, m *member, version uint64, splits []string, before map[string]ps.Progress, stats pipeline.RunStats, failed error) (pipeline.RunStats, error) {
	progress, err := t.progress(context.WithoutCancel(ctx))
	if err != nil {
		return stats, errors.Join(failed, err)
	}
	stats.Rows, stats.Batches = 0, 0
	for split, p := range only(progress, splits) {
		stats.Rows += max(p.Rows-before[split].Rows, 0)
		stats.Batches += max(p.Batches-before[split].Batches, 0)
	}
	if failed == nil || ctx.Err() != nil || errors.Is(failed, ps.ErrRolledBack) {
		return stats, failed
	}
	if errors.Is(failed, ErrStopped) {
		t.notice("the job was stopped at its runner, so training is drained: %v", failed)
		t.drained, stats.Drained = true, true // the splits are given back
		return stats, nil
	}
	if why := m.expelled(ctx); why != nil {
		return stats, why
	}
	for late := time.After(elsewhereSettle); ; {
		_, now, changed, err := m.current()
		if err == nil && now != version {
			t.log.Warn("executors failed while the shards went on to something else", "err", failed)
			stats.Drained = true
			return stats, nil
		}
		select {
		case <-changed:
		case <-late:
			return stats, failed
		}
	}
}

// run runs the training graph on the runner of the job.
func (t *trainer) run(ctx context.Context, m *member, generation uint64, plan *pipeline.Plan, again recipe, o pipeline.RunOptions) (pipeline.RunStats, error) {
	if t.cfg.Runner == spec.RunnerLocal {
		stats, err := local.Run(ctx, plan, o)
		return pipeline.Sum(stats...), err
	}
	r := t.opts.Runners[t.cfg.Runner] // it is there: openTrainer has seen to it
	again.Run = rand.Text()
	built := &Rebuilt{Plan: plan, Env: o.Env}
	if t.elsewhere() {
		if err := m.delegate(ctx, again.Run, ps.Continue); err != nil {
			return pipeline.RunStats{}, err
		}
		built.AllEnded = func(ctx context.Context, tasks int) error { return m.allEnded(ctx, again.Run, tasks) }
		quit := make(chan struct{})
		var tell sync.WaitGroup
		defer tell.Wait()
		defer close(quit)
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		tell.Go(func() { t.tellEnding(ctx, m, generation, again.Run, o, quit, cancel) })
	}
	config, done, err := t.opts.Recipes.add(again, func() (*Rebuilt, error) { return built, nil })
	if err != nil {
		return pipeline.RunStats{}, err
	}
	defer done()
	s := Submission{Recipe: config, Plan: plan, Options: o, Beam: t.cfg.Beam, Notice: t.notice}
	s.Beam.JobName = cmp.Or(s.Beam.JobName, t.cfg.Name)
	return r(ctx, s)
}

// tellEnding tells the executors of a delegated run when it is to end early, until quit is closed. A run of a generation that is no more
// cannot end in order, whatever its runner tries: it is cancelled.
func (t *trainer) tellEnding(ctx context.Context, m *member, generation uint64, run string, o pipeline.RunOptions, quit <-chan struct{}, cancel context.CancelCauseFunc) {
	drain, stop, enough := o.Drain, o.Stop, o.Enough
	for {
		var how ps.Ending
		select {
		case <-drain:
			how, drain = ps.Drain, nil
		case <-stop:
			how, stop = ps.Stop, nil
			if now, _, _, err := m.current(); err == nil && now.Generation != generation {
				cancel(ps.ErrRolledBack)
			}
		case <-enough:
			how, enough = ps.Enough, nil
		case <-quit:
			return
		}
		if err := m.delegate(context.WithoutCancel(ctx), run, how); err != nil { // its executors are fenced or cancelled then
			t.log.Warn("executors elsewhere could not be told to end", "how", how, "err", err)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pickFor is how long a split that the coordinator knows of is looked for in a source that grows: brokers do not know a
// new partition at the same time.
const pickFor = 10 * time.Second

// pick returns all splits of the source, and those of the given names.
func (t *trainer) pick(ctx context.Context, plan *pipeline.Plan, names []string) (all, mine []pipeline.Split, _ error) {
	for began := time.Now(); ; {
		all, err := plan.Splits(ctx)
		if err != nil {
			return nil, nil, err
		}
		t.addSplits(all)
		mine := slices.DeleteFunc(slices.Clone(all), func(s pipeline.Split) bool { return !slices.Contains(names, s.Name) })
		if len(mine) == len(names) {
			return all, mine, nil
		}
		if t.growsEvery() == 0 || time.Since(began) > pickFor {
			return nil, nil, fmt.Errorf("job: the coordinator gives this worker the splits %q, and its source has only %d of them: do all workers read the same source? %w",
				names, len(mine), pipeline.ErrConfig)
		}
		select {
		case <-time.After(pickFor / 20):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// glance describes the phase that ends with an epoch.
func (t *trainer) glance(upTo int) result.Status {
	p := result.Status{Phase: "train", Total: t.cfg.Train.MaxExamples, Epochs: t.cfg.Epochs}
	if t.cfg.Source.Bounded() && t.cfg.Epochs > 1 {
		p.Epoch = upTo
	}
	if n := t.cfg.Source.NumExamples(); n > 0 && (p.Total == 0 || n < p.Total) {
		p.Total = n * int64(t.cfg.Epochs)
	}
	return p
}

// setter keeps worker state for the leader of an assignment, as long as it leads and the shards have that state.
func (t *trainer) setter(m *member, a ps.Assignment) stored.SetState {
	return func(ctx context.Context, key string, value []byte) error {
		return m.store(ctx, a.Generation, key, value)
	}
}

// restore reads the trainer's state of an assignment.
func (t *trainer) restore(ctx context.Context, m *member, a ps.Assignment) (*stored.Trainer, error) {
	var set stored.SetState
	if a.Leader {
		set = t.setter(m, a)
	}
	if err := t.recordKernels(ctx); err != nil { // the shards may have gone back to where they did not know
		return nil, err
	}
	if err := t.refer(ctx, set); err != nil {
		return nil, err
	}
	former := map[string][]byte{}
	if set != nil && t.former == nil {
		keep := set
		set = func(ctx context.Context, key string, value []byte) error {
			was, err := t.shards.State(ctx, key)
			if err != nil {
				return err
			}
			former[key] = was
			return keep(ctx, key, value)
		}
	}
	s, err := stored.RestoreTrainer(ctx, t.shards, t.sourceName(), set)
	if len(former) > 0 {
		t.former = former
	}
	return s, err
}

// giveBack puts back what the state that belongs to a source was of the source before, where this run had it start over and the source has not given
// anybody an example since: it may be a wrong one. Epochs, what was decided and metrics of the other would be lost with it.
func (t *trainer) giveBack(ctx context.Context, m *member) error {
	if t.former == nil {
		return nil
	}
	applied, err := t.progress(ctx)
	if err != nil || rowsOf(applied) > 0 {
		return err
	}
	a, _, _, err := m.current()
	if err != nil {
		return err
	}
	set := t.setter(m, a)
	for _, key := range stored.OfSource() {
		value, kept := t.former[key]
		if !kept {
			continue
		}
		if err := set(ctx, key, value); err != nil {
			return fmt.Errorf("job: putting back what belongs to the source before: %w", err)
		}
	}
	t.former = nil
	return nil
}

// conclude ends a phase for all workers: it evaluates, decides what follows and stores a snapshot. It may be asked to
// again, by a coordinator that was never notified of the end, after it failed or was killed in the midst: what was decided is
// stored in one step with the positions that it was decided at, so nothing is decided twice, and no epoch counts as read
// because it was concluded twice.
func (t *trainer) conclude(ctx context.Context, m *member, a ps.Assignment) (err error) {
	if t.state, err = t.restore(ctx, m, a); err != nil {
		return err
	}
	progress, err := t.progress(ctx)
	if err != nil {
		return err
	}
	places, rows := placesOf(progress), rowsOf(progress)
	ended := t.cfg.Source.Bounded() && (t.cfg.Train.MaxExamples == 0 || rows < t.cfg.Train.MaxExamples)
	known := ended && t.state.Concluded == places
	switch {
	case known && t.repeated == places && t.state.Epochs < t.upTo():
		// A whole phase went by and nothing was to be read: the epoch had been read when epochs were not concluded one by
		// one, without eval.every: epoch.
		t.state.Epochs = t.upTo()
		if err := t.state.Store(ctx, t.setter(m, a)); err != nil {
			return err
		}
	case known:
		t.repeated = places
	case ended && rows == 0 && t.heldOut > 0: // before anything is stored, so that the holdout can be another one
		return fault.Config("job: eval.holdout holds out every example (%d were read) and leaves none to train on: set a smaller share, or a later from", t.heldOut)
	default:
		upTo := t.upTo()
		if from, _ := t.cfg.EvalSource(); from != nil && (evaluatesEpochs(t.cfg) || !ended || upTo >= t.cfg.Epochs) {
			drained, err := t.evaluate(ctx, upTo, ended, places)
			if err != nil {
				return err
			}
			if drained { // the next run evaluates this epoch
				t.drained = true
				return nil
			}
		}
		if ended && rows == 0 {
			t.notice("the source has ended and had no examples: %s", t.source().Source)
		}
		if ended {
			t.state.Epochs, t.state.Concluded = max(upTo, t.state.Epochs), places
		}
		if err := t.state.Store(context.WithoutCancel(ctx), t.setter(m, a)); err != nil {
			return err
		}
	}
	label := ""
	if ended && marksBest(t.cfg) && t.state.TopAt == places {
		label = stored.BestLabel
	}
	finished := !ended || t.state.Epochs >= t.cfg.Epochs || t.state.Stopped
	marked, err := t.endBackfill(ctx, m, a, finished)
	if err != nil {
		return err
	}
	if saved, err := t.saved(ctx, progress, label); err != nil {
		return err
	} else if !known || !saved || marked {
		if err := t.save(ctx, ps.SnapshotOptions{Label: label}); err != nil {
			return err
		}
	}
	return m.tell(ctx, ps.Report{
		Generation: a.Generation, Phase: a.Phase, Concluded: true,
		Finished: finished,
	})
}

// saved reports whether the newest snapshot is as old as the shards' positions, and labelled as it should be.
func (t *trainer) saved(ctx context.Context, progress map[string]ps.Progress, label string) (bool, error) {
	newest, err := t.shards.Newest(ctx)
	if err != nil || newest == nil {
		return false, err
	}
	return newest.Label == label && placesOf(t.ownOf(newest.Positions[t.source().Name])) == placesOf(progress), nil
}

// save takes a snapshot, which is pinned if the run's last is to be.
func (t *trainer) save(ctx context.Context, o ps.SnapshotOptions) error {
	o.Pin, o.Note = t.opts.Pin != "", t.opts.Pin
	info, err := t.shards.Snapshot(context.WithoutCancel(ctx), o)
	switch {
	case err != nil && t.cfg.PS.Remote():
		return fmt.Errorf("job: the last snapshot could not be taken: %w; what was trained is in the shards as long as they run: fix that and train again", err)
	case err != nil:
		return fmt.Errorf("job: the last snapshot: %w", err)
	}
	t.snapshot = &info
	t.acknowledge(&info)
	return nil
}

// leave ends the membership of a drained run. The last to leave takes a snapshot, while others continue with its splits.
func (t *trainer) leave(ctx context.Context, m *member) error {
	t.drained = true
	last, err := m.leave(context.WithoutCancel(ctx))
	if err != nil || !last {
		return err
	}
	if t.left > 0 {
		t.notice("draining: what was taken is trained; %d examples that were read and wait for a full batch or their turn are read again by the next run", t.left)
	} else {
		t.notice("draining: what was read is trained")
	}
	newest, err := t.shards.Newest(ctx)
	if err != nil {
		return err
	}
	t.notice("now the last snapshot is taken")
	// What another worker has decided meanwhile is what the snapshot holds.
	ctx = context.WithoutCancel(ctx)
	if t.state, err = stored.RestoreTrainer(ctx, t.shards, t.sourceName(), nil); err != nil {
		return err
	}
	if err := t.save(ctx, ps.SnapshotOptions{IfChanged: t.opts.Pin == ""}); err != nil {
		return err
	}
	if newest != nil && t.snapshot.Path == newest.Path {
		t.notice("nothing was trained since %s, which stays the last", newest.Path)
	}
	return nil
}

// acknowledgeAll acknowledges to the source every snapshot that is taken while this run is the leader.
func (t *trainer) acknowledgeAll(ctx context.Context, m *member, quit <-chan struct{}) {
	last := uint64(0)
	for {
		a, _, changed, err := m.current()
		if err != nil {
			return
		}
		if a.Leader && a.Snapshot > last {
			last = a.Snapshot
			if info, err := t.shards.Newest(ctx); err == nil && info != nil {
				t.acknowledge(info)
			}
		}
		select {
		case <-changed:
		case <-quit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// result says what the run did.
func (t *trainer) result(ctx context.Context) (*result.TrainResult, error) {
	// Another worker may have decided on epochs, and another snapshot may have been taken, since this one last looked.
	var err error
	if t.state, err = stored.RestoreTrainer(ctx, t.shards, t.sourceName(), nil); err != nil {
		return nil, err
	}
	if t.snapshot, err = t.shards.Newest(ctx); err != nil {
		return nil, fault.Unavailable(err)
	}
	// What several epochs were trained on is no progressive metric, though the job asks for one epoch now.
	first := progressive(t.cfg) && t.state.Epochs <= 1
	scores, doubted, scored, err := traceScores(ctx, t.cfg, t.shards, first)
	if err != nil {
		return nil, err
	}
	r := &result.TrainResult{
		Examples: t.rows, Steps: t.steps, Epochs: t.state.Epochs, Seconds: time.Since(t.began).Seconds(), Metrics: scores,
		BadRows: t.badRows, HeldOut: t.heldOut, Features: t.monitor.fills.end(), EarlyStopped: t.state.Stopped, Drained: t.drained,
	}
	for _, text := range doubted {
		r.Doubts = append(r.Doubts, "in training: "+text)
	}
	for _, text := range t.doubted {
		r.Doubts = append(r.Doubts, "held out: "+text)
	}
	if first {
		r.ProgressiveExamples = scored
		if r.LifetimeExamples, err = lifetimeScores(ctx, t.cfg, t.shards, r.Metrics); err != nil {
			return nil, err
		}
	} else {
		r.TrainingExamples = scored
	}
	if r.Backfill, err = t.backfilled(ctx); err != nil {
		return nil, err
	}
	r.LostRecords, r.Lost = t.monitor.lostSoFar()
	for cause, n := range t.rowsRemoved(ctx) {
		if n -= t.removed[cause]; n > 0 {
			if r.RowsRemoved == nil {
				r.RowsRemoved = map[string]int64{}
			}
			r.RowsRemoved[cause] = n
		}
	}
	r.ExamplesPerSecond = float64(t.rows) / max(r.Seconds, 1e-9)
	maps.Copy(r.Metrics, t.state.Metrics)
	if p := t.cfg.Train.Plateau; p != nil && t.state.Best != nil {
		r.Metrics[bestName(p.Metric)] = *t.state.Best
	}
	if marksBest(t.cfg) && t.state.Top != nil {
		r.Metrics[bestName(t.cfg.Watched())] = *t.state.Top
		r.BestEpoch = t.state.TopEpoch
		if best, err := stored.BestIn(fsx.Local{}, stored.SnapshotsIn(t.cfg)); err == nil && best != nil {
			r.BestSnapshot = best.Path
		}
		if text := fellBack(t.cfg, t.state, r.BestSnapshot != ""); text != "" {
			r.Doubts = append(r.Doubts, "held out: "+text)
		}
	}
	if t.snapshot != nil {
		r.Snapshot = t.snapshot.Path
	}
	if s := t.shards.Restored(); s != nil {
		r.ResumedFrom = s.Path
	} else if stale := t.cfg.Train.Staleness(); t.steps > 0 && t.steps < spec.FewBatches(stale) && (!t.cfg.InTurn() || stale >= int64(t.cfg.Train.Workers)) {
		t.log.WarnContext(ctx, "few batches for so many under way: gradients were stale while steps were large; make batches or prefetch smaller, or train with fewer workers",
			"batches", t.steps, "under_way", stale, "want", spec.FewBatches(stale))
	}
	return r, nil
}

// bestName is what results call the best value of a score: best_auc, click.best_auc.
func bestName(score string) string {
	i := strings.LastIndexByte(score, '.') + 1
	return score[:i] + "best_" + score[i:]
}
