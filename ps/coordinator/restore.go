package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// cleanTries is how often a folder is cleaned: a shard that does not know yet that its coordinator is gone may begin a file there meanwhile, and finds no place for the next one.
const cleanTries = 5

// prepareDir removes what killed writers have left and finds the number of the newest snapshot.
func (c *Cluster) prepareDir(ctx context.Context) error {
	if c.opts.Dir == "" {
		return nil
	}
	for try := 1; ; try++ {
		gone, err := snapshot.Clean(c.opts.FS, c.opts.Dir)
		if len(gone) > 0 && err == nil {
			c.opts.Logger.InfoContext(ctx, "unfinished snapshots removed", "dir", c.opts.Dir, "names", gone)
		}
		if err == nil {
			break
		}
		if try == cleanTries || ctx.Err() != nil {
			return fmt.Errorf("ps: cleaning %s: %w", c.opts.Dir, err)
		}
	}
	entries, err := snapshot.ListIn(c.opts.FS, c.opts.Dir)
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	c.ages.See(entries)
	if len(entries) > 0 {
		c.before = entries[0].ID
	}
	c.mu.newest = max(c.before, c.opts.After)
	return nil
}

// watch asks the shards how they are, and gives them a state whenever one has none or another than the rest.
func (c *Cluster) watch() {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	logged := ""
	for {
		err := c.ensureState()
		c.mu.Lock()
		if c.mu.missing = err != nil; err != nil {
			c.mu.notReady = err
		}
		c.mu.Unlock()
		if err != nil && c.run.Err() == nil {
			if text := err.Error(); text != logged {
				logged = text
				c.opts.Logger.WarnContext(c.run, "shards not all there", "err", err)
			}
		} else if logged != "" && err == nil {
			logged = ""
			c.opts.Logger.InfoContext(c.run, "all shards are there")
		}
		select {
		case <-c.run.Done():
			return
		case <-t.C:
		}
		c.repay()
		c.dismissLeft()
	}
}

// ensureState restores the shards if they need a state.
func (c *Cluster) ensureState() error {
	for {
		agree, generation, err := c.agree()
		if agree || err != nil {
			return err
		}
		mine, err := c.takeTurnFrom(c.run, generation, fmt.Errorf("ps: a shard has lost its state: %w", ps.ErrNotReady))
		if err != nil {
			return err
		}
		if !mine {
			continue
		}
		if agree, _, err = c.agree(); !agree && err == nil { // else who had the turn has given them one
			err = c.assemble(c.run, false)
		}
		<-c.turn
		return err
	}
}

// takeTurnFrom is takeTurn for who has seen that the shards need a state, in the one of a generation (0: while they were being given one): a snapshot of that is interrupted, also one
// that only begins. ok is false, and the turn another's, when they are of another generation meanwhile: what was seen is over, and a snapshot of theirs is left alone.
func (c *Cluster) takeTurnFrom(ctx context.Context, generation uint64, why error) (ok bool, err error) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for c.interrupt(generation, why) {
		select {
		case c.turn <- struct{}{}:
			return true, nil
		case <-t.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-c.run.Done():
			return false, ps.ErrClosed
		}
	}
	return false, nil
}

// agree reports whether all shards have the state of the cluster's generation, as far as that is known: while they are
// being given one, the next check decides. What it says is of that generation.
func (c *Cluster) agree() (agree bool, generation uint64, err error) {
	before, peers := c.generation(), c.peers()
	st, err := c.statuses(c.run)
	if err != nil {
		return false, before, err
	}
	now := c.generation()
	if before != now {
		return true, now, nil
	}
	agree = same(st) && st[0].Generation == now
	if agree && len(st) == len(peers) {
		c.endLeft(peers, st)
	}
	return agree, now, nil
}

// generation is that of the state the shards were given, 0 while they have none.
func (c *Cluster) generation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.generation
}

// same reports whether all shards have a state, of one generation, in which there are as many.
func same(st []ps.NodeStatus) bool {
	for _, s := range st {
		if s.Generation == 0 || s.Generation != st[0].Generation || s.NumShards != len(st) {
			return false
		}
	}
	return true
}

func (c *Cluster) statuses(ctx context.Context) ([]ps.NodeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	peers := c.peers()
	st := make([]ps.NodeStatus, len(peers))
	err := c.eachOf(ctx, peers, func(ctx context.Context, i int, p ps.Peer) (err error) {
		st[i], err = p.Status(ctx)
		return err
	})
	return st, err
}

// RollBack makes all shards go back to the newest snapshot, because a worker found that they do not fit together. A call
// that comes after the shards have left the generation has no effect. Errors: those of restoring, [ps.ErrClosed].
func (c *Cluster) RollBack(ctx context.Context, generation uint64, why string) error {
	mine, err := c.takeTurnFrom(ctx, generation, fmt.Errorf("ps: the shards go back to the newest snapshot: %w", ps.ErrRolledBack))
	if !mine {
		return err
	}
	defer func() { <-c.turn }()
	if c.generation() != generation {
		return nil
	}
	c.opts.Logger.WarnContext(ctx, "going back to the newest snapshot", "reason", why)
	return c.assemble(ctx, true)
}

// assemble makes all shards hold one state of one generation: the one they have, if they agree, or that of a snapshot. The
// caller has the turn, or is alone.
func (c *Cluster) assemble(ctx context.Context, back bool) error {
	st, err := c.statuses(ctx)
	if err != nil {
		return err
	}
	newest := uint64(0)
	for _, s := range st {
		newest = max(newest, s.Generation)
		c.mu.Lock()
		c.mu.newest = max(c.mu.newest, s.LogBase) // also of a snapshot that was begun only
		scaling := c.mu.scaling                   // then a shard without a log is one that is added, and nothing is missing
		c.mu.Unlock()
		if s.Recovery.Lost != "" && !scaling {
			c.opts.Logger.WarnContext(ctx, "log gives back nothing", "shard", s.Shard, "reason", s.Recovery.Lost)
		}
	}
	if same(st) && !back {
		return c.goOn(ctx, st)
	}
	c.notReady(fmt.Errorf("ps: the shards are being given a state: %w", ps.ErrNotReady))
	// Generations do not come again when all shards have forgotten theirs: workers may have survived, and what they did in a
	// state that is no more must not count in this one.
	from := max(newest, uint64(time.Now().UnixMicro()))
	floor, err := c.floor(from, newest, back)
	if err != nil {
		return err
	}
	keep := func(i int) bool { return st[i].Generation >= floor && st[i].NumShards == len(st) }
	generation, info, err := c.loadNewest(ctx, from, keep)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if c.generation() == 0 { // the beginning, which the caller that opened the cluster reports: see Restored
		level = slog.LevelDebug
	}
	c.ready(generation, info, false, false)
	attrs := []any{"generation", generation}
	if info != nil {
		attrs = append(attrs, "path", snapshot.Absolute(info.Path), "rows", info.Rows(), "shards_then", info.Shards)
	}
	c.opts.Logger.Log(ctx, level, "shards are ready", attrs...)
	return nil
}

// floorName is the file in the snapshots' folder that has the lowest generation whose state a shard may keep, under [ps.Partial].
const floorName = "floor"

// floor returns the lowest generation whose state a shard may keep while others lose theirs. newest is the highest that a
// shard has, from one that no state has had yet; back says that all go back.
//
// Under [ps.Partial] it outlives the coordinator, in the snapshots' folder. Where the file is missing this is the first life of
// the folder, or another one than that of states in logs elsewhere, started over: rows of a former life must not meet positions
// of this one.
func (c *Cluster) floor(from, newest uint64, back bool) (uint64, error) {
	c.mu.Lock()
	floor := c.mu.floor
	c.mu.Unlock()
	store := false
	switch {
	case back || c.opts.Recovery != ps.Partial:
		floor, store = from+1, c.opts.Recovery == ps.Partial
	case floor != 0:
	case c.opts.Dir == "":
		floor = max(newest, 1)
	default:
		stored, err := snapshot.ReadNumber(c.opts.FS, filepath.Join(c.opts.Dir, floorName))
		if err != nil {
			return 0, fmt.Errorf("ps: %w", err)
		}
		if floor = max(newest, stored); stored == 0 {
			floor, store = from+1, true
		}
	}
	if store && c.opts.Dir != "" {
		// Before any shard is given a state: a process started after a death in the middle must not keep what was to be discarded.
		if err := snapshot.WriteNumber(c.opts.FS, filepath.Join(c.opts.Dir, floorName), floor); err != nil {
			return 0, fmt.Errorf("ps: %w", err)
		}
	}
	c.mu.Lock()
	c.mu.floor = floor
	c.mu.Unlock()
	return floor, nil
}

// goOn takes over shards that agree: their logs gave everything back, or only this process was started again.
func (c *Cluster) goOn(ctx context.Context, st []ps.NodeStatus) error {
	// A shard that found the newest snapshot damaged goes back to the one before and more of its log: that is what all continue from.
	base, records := st[0].Base, int64(0)
	for _, s := range st {
		base, records = min(base, s.Base), records+s.Recovery.Records
	}
	var info *ps.SnapshotInfo
	if base > 0 && c.opts.Dir != "" {
		entries, err := snapshot.ListIn(c.opts.FS, c.opts.Dir)
		if err != nil {
			return fmt.Errorf("ps: %w", err)
		}
		for _, e := range entries {
			if e.ID == base {
				info = e.Info
			}
		}
	}
	if info != nil {
		c.differs(ctx, c.opts.Layout.Rules().Changes(info.Rules, nil))
	}
	// What a coordinator before this one has begun, nobody will end.
	if err := c.each(ctx, func(ctx context.Context, _ int, p ps.Peer) error {
		_, err := p.EndCut(ctx, ps.AnyCut, 0)
		return err
	}); err != nil {
		return err
	}
	c.ready(st[0].Generation, info, true, c.opts.remote())
	c.opts.Logger.InfoContext(ctx, "shards continue from their logs", "generation", st[0].Generation, "base", base, "records", records)
	return nil
}

func (c *Cluster) nextCut() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cuts++; c.mu.cuts == ps.AnyCut {
		c.mu.cuts++
	}
	return c.mu.cuts
}

func (c *Cluster) notReady(why error) {
	c.mu.Lock()
	c.mu.generation, c.mu.notReady = 0, why
	c.mu.Unlock()
}

func (c *Cluster) ready(generation uint64, info *ps.SnapshotInfo, continued, held bool) {
	c.mu.Lock()
	c.mu.generation, c.mu.restored, c.mu.continued, c.mu.saved = generation, info, continued, 0
	c.mu.Unlock()
	c.groups.begin(generation, held)
}

// loadNewest loads the newest good snapshot, or initial values when there is none, into all shards but those that keep
// what they have. It returns the generation of that state. Each attempt is one of its own, above the given: shards that
// were interrupted between two would otherwise pass for being of one state.
func (c *Cluster) loadNewest(ctx context.Context, above uint64, keep func(i int) bool) (uint64, *ps.SnapshotInfo, error) {
	generation := above + 1
	entries, err := c.candidates()
	if err != nil {
		return 0, nil, err
	}
	var skipped []error
	for i, e := range entries {
		info, err := e.Info, e.Err
		if err == nil {
			info, err = c.fitting(ctx, info)
		}
		if err == nil {
			err = c.load(ctx, generation, info, keep)
		}
		c.mu.Lock()
		c.mu.skipped = skipped
		c.mu.Unlock()
		if !errors.Is(err, ps.ErrCorrupt) {
			return generation, info, err
		}
		generation++
		if e.Info != nil {
			c.verified.Note(e.Info, err)
		}
		skipped = append(skipped, fmt.Errorf("ps: %w", err))
		if i+1 < len(entries) { // else it is the error
			c.opts.Logger.WarnContext(ctx, "damaged snapshot passed over", "path", e.Path, "err", err)
		}
	}
	switch {
	case c.opts.Restore != "":
		return 0, nil, fmt.Errorf("ps: restoring %s: %w", c.opts.Restore, errors.Join(skipped...))
	case c.opts.From != "" && len(entries) == 1 && entries[0].Path == c.opts.From:
		return 0, nil, fmt.Errorf("ps: beginning with the parameters of %s: %w", c.opts.From, errors.Join(skipped...))
	case len(skipped) > 0:
		return 0, nil, fmt.Errorf("ps: no snapshot in %s is whole; to start over, move them away: %w", c.opts.Dir, errors.Join(skipped...))
	}
	return generation, nil, c.load(ctx, generation, nil, keep)
}

// candidates returns the snapshots that the shards may go back to, the best first: those of the folder, the newest first,
// or the one that was asked for, after those that were taken since; where there is none, that of the run to begin from.
func (c *Cluster) candidates() ([]snapshot.Entry, error) {
	var entries []snapshot.Entry
	if c.opts.Dir != "" {
		var err error
		if entries, err = snapshot.ListIn(c.opts.FS, c.opts.Dir); err != nil {
			return nil, fmt.Errorf("ps: %w", err)
		}
	}
	if c.opts.Restore == "" {
		if len(entries) == 0 && c.opts.From != "" {
			return []snapshot.Entry{snapshot.ReadEntry(c.opts.FS, c.opts.From)}, nil
		}
		return entries, nil
	}
	entries = slices.DeleteFunc(entries, func(e snapshot.Entry) bool { return e.ID <= c.before })
	info, err := snapshot.ReadInfoIn(c.opts.FS, c.opts.Restore) // the shards verify what they need of it
	asked := snapshot.Entry{Path: c.opts.Restore, Info: info, Err: err}
	if info != nil {
		asked.ID = info.ID
	}
	return append(entries, asked), nil
}

func (c *Cluster) load(ctx context.Context, generation uint64, info *ps.SnapshotInfo, keep func(i int) bool) error {
	peers := c.peers()
	o := ps.LoadOptions{Generation: generation, Shards: len(peers)}
	if info != nil {
		o.Path, o.ID = info.Path, info.ID
	}
	var kept atomic.Bool
	err := c.eachOf(ctx, peers, func(ctx context.Context, i int, p ps.Peer) error {
		o := o
		if o.Keep = keep(i); o.Keep {
			kept.Store(true)
		}
		return p.Load(ctx, o)
	})
	if err == nil && info != nil && !kept.Load() { // the shards together have read all of it
		c.verified.Note(info, nil)
	}
	return err
}

// fitting returns the snapshot itself when its parameters fit the layout, and otherwise, where [Options].Fit lets them be
// made to fit, one in the job's folder that does. It says what changes. Errors: [ps.ErrLayout], [ps.ErrCorrupt], those of writing.
func (c *Cluster) fitting(ctx context.Context, info *ps.SnapshotInfo) (*ps.SnapshotInfo, error) {
	fit, err := c.opts.Layout.Fit(info.Shape(), c.opts.Fit)
	if err != nil {
		return nil, ps.Unfit(info.Path, err.Error())
	}
	changes := fit.Notes
	if !c.opts.ReadOnly {
		changes = append(changes, c.opts.Layout.Rules().Changes(info.Rules, c.opts.Fit.Rename)...)
		changes = append(changes, c.uncounted(info)...)
	}
	foreign := c.opts.From != "" && info.Path == c.opts.From
	if (!fit.Exact || foreign) && c.opts.Dir != "" && c.opts.Restore == "" {
		if info, err = c.convert(ctx, info, fit, !foreign); err != nil {
			return nil, err
		}
	} else if !fit.Exact {
		return nil, ps.Unfit(info.Path, strings.Join(fit.Notes, "\n  "))
	}
	c.differs(ctx, changes)
	return info, nil
}

// uncounted reports a snapshot's counts of ids without a row that the layout's admission drops. Only exact keeps
// counts of ids, and only a filter of the same splits and cells keeps those of a filter.
func (c *Cluster) uncounted(info *ps.SnapshotInfo) (changes []string) {
	rules := c.opts.Layout.Retention
	keeps := map[snapshot.Kind]bool{snapshot.KindWaiting: rules.Waits() && rules.Admission == param.AdmitExact}
	if was, is := info.Rules.Retention, rules.Filter(); was != nil {
		from := was.Filter()
		keeps[snapshot.KindFilter] = from.Splits == is.Splits && from.Cells == is.Cells
	}
	for _, kind := range []snapshot.Kind{snapshot.KindWaiting, snapshot.KindFilter} {
		var n int64
		for _, f := range info.Files {
			if f.Kind == kind {
				n += f.Rows
			}
		}
		switch {
		case n == 0 || keeps[kind]:
		case kind == snapshot.KindFilter:
			changes = append(changes, "what the hash filter has counted of ids without a row is dropped: they begin from 0")
		default:
			changes = append(changes, fmt.Sprintf("the occurrences of %d ids without a row are dropped: they begin from 0", n))
		}
	}
	return changes
}

// MadeOf begins the note of a snapshot that was made of another one, whose path follows.
const MadeOf = "made of "

// convert writes a snapshot of the layout into the job's folder.
func (c *Cluster) convert(ctx context.Context, info *ps.SnapshotInfo, fit *param.Fit, keep bool) (*ps.SnapshotInfo, error) {
	from, err := snapshot.OpenWith(ctx, info.Path, snapshot.OpenOptions{FS: c.opts.FS})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.mu.newest++
	number := c.mu.newest
	c.mu.Unlock()
	place := ps.NewPlacement(c.opts.Layout, info.Shards)
	var carried map[string][]byte
	for _, key := range c.opts.Carry {
		if b, ok := info.State[key]; ok {
			if carried == nil {
				carried = map[string][]byte{}
			}
			carried[key] = b
		}
	}
	made, err := snapshot.Convert(ctx, from, fit, snapshot.Options{
		FS: c.opts.FS, Dir: c.opts.Dir, ID: number, Layout: c.opts.Layout, Note: MadeOf + snapshot.Absolute(info.Path),
		Meta: c.opts.Meta, Recipe: c.opts.Recipe, Model: c.opts.Model, Created: time.Now(), Need: info.Bytes(), State: carried,
	}, keep, place.TensorShard)
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, fmt.Errorf("ps: making a snapshot that fits of %s: %w", info.Path, err)
	}
	c.opts.Logger.InfoContext(ctx, "snapshot made to fit", "path", made.Path, "from", info.Path, "rows", made.Rows())
	return made, nil
}

// differs notes what is not as in the snapshot that is restored.
func (c *Cluster) differs(ctx context.Context, changes []string) {
	c.mu.Lock()
	c.mu.changes = changes
	c.mu.Unlock()
	for _, line := range changes {
		c.opts.Logger.InfoContext(ctx, "not as in the snapshot", "change", line)
	}
}
