package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// ImportOptions say what is taken over. From is required; the zero value of everything else works.
type ImportOptions struct {
	// From is a model's folder, a checkpoint's prefix, an exported model or a folder of tables: [entrydump.Find].
	From string
	// Mapping says what becomes of what; nil: by slots.
	Mapping *Mapping
	// To is the folder of snapshots that one is written into, which has none; empty: that of the job.
	To string
	// DryRun reads everything and writes nothing.
	DryRun bool
	// Memory bounds the rows of a table that are held in memory while they are sorted. Default 256 MiB.
	Memory int64
}

// Import makes a snapshot for a job of a checkpoint of bytedance/monolith, from which training continues and evaluation reads. Rows have
// the weights and, where the rule is the same, the state that they had; what starts over is in the result, with the rows that were left
// out and why. Nothing is left behind after an error.
//
// Errors: [pipeline.ErrConfig] for a job that has snapshots already and for a mapping that does not fit, and when there is nothing to take over;
// [entrydump.ErrNone], [entrydump.ErrDamaged] with file and place; [snapshot.ErrNoSpace]; the context's.
func Import(ctx context.Context, c *spec.Config, o ImportOptions) (_ *result.Imported, err error) {
	began := time.Now()
	found, err := entrydump.Find(ctx, fsx.Local{}, o.From)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	m, err := wiring.Model(c)
	if err != nil {
		return nil, err
	}
	plan, err := wiring.BuildPlan(c)
	if err != nil {
		return nil, err
	}
	router, err := newRouter(c, m, o.Mapping)
	if err != nil {
		return nil, err
	}
	dir := o.To
	if dir == "" {
		dir = stored.SnapshotsIn(c)
	} else if err := c.Destination("--to", dir, true); err != nil {
		return nil, err
	}
	if !o.DryRun {
		lock, err := stored.Claim(c, stored.LockName(0), "another run has")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		if err := empty(dir); err != nil {
			return nil, err
		}
	}
	opts, err := wiring.ClusterOptions(ctx, c, plan, m, nil)
	if err != nil {
		return nil, err
	}
	i := &importer{ctx: ctx, found: found, router: router, layout: m.Layout(), skipped: map[string]int64{}, filters: map[string]*entrydump.FilterInfo{}}
	defer func() { err = errors.Join(err, i.close()) }()
	if err := i.open(c.Dir, o); err != nil {
		return nil, err
	}
	if err := i.read(); err != nil {
		return nil, err
	}
	r := i.result()
	if r.Rows == 0 {
		return r, fault.Config("job: nothing of %s fits the job: %s", found.Assets, i.why())
	}
	if !o.DryRun {
		if err := i.write(&opts, c, dir, r); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// empty refuses a folder that has snapshots.
func empty(dir string) error {
	entries, err := snapshot.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	if len(entries) > 0 {
		return fault.Config("job: %s has snapshots already, such as %s: give the job another dir, or name another folder with --to", dir, entries[0].Path)
	}
	return nil
}

// importer is one import.
type importer struct {
	ctx    context.Context
	found  *entrydump.Checkpoint
	router *router
	layout *param.Layout
	tables []*importTable
	dense  []snapshot.Tensor

	entries int64
	skipped map[string]int64
	filters map[string]*entrydump.FilterInfo
	// denseTaken and denseInitial are the names of dense tensors.
	denseTaken, denseInitial []string
}

// importTable is a table on its way.
type importTable struct {
	spec    param.Table
	keepers []*keeper
	spill   *spill // nil: nothing is written
	rows    int64
	from    map[string]int64
	why     []map[string]int64 // by segment: what is the matter with its state
	initial []int64            // by segment: rows whose weights start over
	weights []float32
	state   []float32
}

func (i *importer) open(dir string, o ImportOptions) error {
	for _, t := range i.layout.Tables {
		it := &importTable{spec: t, from: map[string]int64{}, initial: make([]int64, len(t.Segments)), weights: make([]float32, t.Dim()), state: make([]float32, t.StateDim())}
		for _, s := range t.Segments {
			it.keepers = append(it.keepers, newKeeper(s.Optimizer))
			it.why = append(it.why, map[string]int64{})
		}
		i.tables = append(i.tables, it)
		if o.DryRun {
			continue
		}
		var err error
		if it.spill, err = newSpill(t.Dim(), t.StateDim(), dir, o.Memory); err != nil {
			return fault.Unavailable(fmt.Errorf("job: %w", err))
		}
	}
	var err error
	i.dense, err = i.tensors(o.Mapping)
	return err
}

func (i *importer) close() error {
	var errs []error
	for _, t := range i.tables {
		if t.spill != nil {
			errs = append(errs, t.spill.close())
		}
	}
	return errors.Join(errs...)
}

// read reads all entries.
func (i *importer) read() error {
	for _, f := range i.found.Files {
		for shard := range f.Shards {
			if err := i.readShard(f, shard); err != nil {
				return fmt.Errorf("job: %w", err)
			}
		}
	}
	for _, f := range i.found.Filters {
		info, err := i.found.Filter(i.ctx, fsx.Local{}, f)
		if err != nil {
			return fmt.Errorf("job: %w", err)
		}
		i.filters[f.Name] = info
	}
	return nil
}

func (i *importer) readShard(f entrydump.File, shard int) (err error) {
	in, err := i.found.Open(i.ctx, fsx.Local{}, f, shard)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	stream := entrydump.FileName(f.Name, shard, f.Shards)
	for _, t := range i.tables {
		if t.spill != nil {
			if err := t.spill.begin(i.ctx, stream); err != nil {
				return err
			}
		}
	}
	for {
		name, e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if i.entries++; i.entries%spillRows == 0 && i.ctx.Err() != nil {
			return context.Cause(i.ctx)
		}
		if err := i.take(f.Name, name, e); err != nil {
			return err
		}
	}
}

// take takes an entry over, or counts why not.
func (i *importer) take(file, name string, e *entrydump.Entry) error {
	to, l, id, why := i.router.route(i.router.rule(file, name), e.ID)
	switch {
	case why != "":
	case len(e.Num) != l.dim:
		why = fmt.Sprintf("a row of %s has %d numbers, table %s is made of %d: see tables[].segments of the mapping", name, len(e.Num), i.tables[to].spec.Name, l.dim)
	case !finite(e.Num):
		why = "its weights are not finite"
	}
	if why != "" {
		i.skipped[why]++
		return nil
	}
	t := i.tables[to]
	t.fill(i.layout.Seed, l, id, e)
	t.rows++
	t.from[name]++
	if t.spill == nil {
		return nil
	}
	micros := int64(0)
	if e.Time > 0 && e.Time < math.MaxInt64/1_000_000 {
		micros = e.Time*1_000_000 + int64(e.Micros)
	}
	return t.spill.add(i.ctx, id, micros, cmp.Or(e.Count, 1), t.weights, t.state)
}

// fill makes a row of an entry.
func (t *importTable) fill(seed uint64, l *layout, id int64, e *entrydump.Entry) {
	at, stateAt := 0, 0
	for k, s := range t.spec.Segments {
		w := t.weights[at:][:s.Dim]
		state := t.state[stateAt:][:s.Optimizer.StateDim(s.Dim)]
		at, stateAt = at+len(w), stateAt+len(state)
		from := l.segments[k]
		if from.at < 0 {
			s.Init.Fill(w, seed, param.HashName(t.spec.Name, s.Name), uint64(id))
			s.Optimizer.Init(w, state)
			t.initial[k]++
			continue
		}
		copy(w, e.Num[from.at:])
		d, why := t.dump(l, from.dump, e)
		if why == "" || len(state) == 0 {
			why = t.keepers[k].take(w, state, d)
		} else {
			s.Optimizer.Init(w, state)
		}
		if why != "" {
			t.why[k][why]++
		}
	}
}

// dump finds the state of a segment of the checkpoint among those that rules write.
func (t *importTable) dump(l *layout, segment int, e *entrydump.Entry) (d *entrydump.Dump, why string) {
	if len(e.Opt) == 0 {
		return nil, ""
	}
	if len(e.Opt) == l.dumps {
		return &e.Opt[segment], ""
	}
	at, all := 0, 0
	for s, owner := range l.owners {
		if owner >= 0 && !t.keepers[owner].dumps() {
			continue
		}
		if s == segment {
			at = all
		}
		all++
	}
	if all != len(e.Opt) {
		return nil, fmt.Sprintf("the row has state of %d segments, and is made of %d", len(e.Opt), l.dumps)
	}
	return &e.Opt[at], ""
}

// write writes the snapshot.
func (i *importer) write(o *coordinator.Options, c *spec.Config, dir string, r *result.Imported) (err error) {
	for _, t := range i.tables {
		if err := t.spill.open(i.ctx); err != nil {
			return fault.Unavailable(fmt.Errorf("job: %w", err))
		}
	}
	shards := max(c.PS.Shards, len(c.PS.Addresses), 1)
	w, err := snapshot.Create(snapshot.Options{
		Dir: dir, ID: 1, Layout: o.Layout, Shards: shards, Note: "imported from " + snapshot.Absolute(i.found.Assets), Meta: o.Meta, Recipe: o.Recipe, Model: o.Model, Created: time.Now(),
	})
	if err != nil {
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	var info *snapshot.Info
	for shard := range shards {
		var part *snapshot.Part
		if part, err = i.part(w.Dir(), o.Layout, shard, shards); err != nil {
			break
		}
		w.Add(part)
	}
	if err == nil {
		info, err = w.Commit()
	}
	if err != nil {
		return fault.Unavailable(fmt.Errorf("job: %w", errors.Join(err, w.Abort())))
	}
	r.Snapshot, r.Digest, r.Rows = info.Path, info.Digest, info.Rows()
	for k, t := range i.tables {
		r.Tables[k].Rows, r.Tables[k].Twice = info.Tables[k].Rows, t.spill.twice
	}
	return nil
}

// part writes what one shard has.
func (i *importer) part(dir string, l *param.Layout, shard, shards int) (*snapshot.Part, error) {
	p := snapshot.NewPart(snapshot.PartOptions{Dir: dir, Layout: l, Shard: shard})
	end := func(id int64) bool { return ps.ShardOf(ps.Bucket(id), shards) != shard }
	for k, t := range i.tables {
		var failed error
		err := p.Rows(k, func(dst *table.Rows, limit int) bool {
			if failed = context.Cause(i.ctx); failed != nil {
				return false
			}
			var more bool
			more, failed = t.spill.next(dst, limit, end)
			return more && failed == nil
		})
		if err = errors.Join(failed, err); err != nil {
			return nil, err
		}
	}
	place := ps.NewPlacement(l, shards)
	return p.Part(), p.Dense(slices.DeleteFunc(slices.Clone(i.dense), func(t snapshot.Tensor) bool { return place.TensorShard(t.Name) != shard }))
}

// result says what was taken over.
func (i *importer) result() *result.Imported {
	r := &result.Imported{From: i.found.Assets, Step: i.found.Step, Entries: i.entries, Dense: i.denseTaken, DenseInitial: i.denseInitial}
	for _, t := range i.tables {
		it := result.ImportedTable{Name: t.spec.Name, Rows: t.rows}
		for _, name := range slices.Sorted(maps.Keys(t.from)) {
			it.From = append(it.From, result.Counted{What: name, Rows: t.from[name]})
		}
		for k, s := range t.spec.Segments {
			if t.initial[k] > 0 {
				it.Restarted = append(it.Restarted, result.Counted{What: "weights of " + s.Name + ": the mapping does not name the segment", Rows: t.initial[k]})
			}
			for _, c := range counted(t.why[k]) {
				it.Restarted = append(it.Restarted, result.Counted{What: "state of " + s.Name + ": " + c.What, Rows: c.Rows})
			}
		}
		r.Rows += t.rows
		r.Tables = append(r.Tables, it)
	}
	r.Skipped = counted(i.skipped)
	for _, name := range slices.Sorted(maps.Keys(i.filters)) {
		f := i.filters[name]
		r.Filters = append(r.Filters, result.ImportedFilter{Name: name, Splits: f.Splits, Counters: f.Counters})
	}
	for _, name := range i.found.Others {
		r.Others = append(r.Others, filepath.Join(i.found.Assets, name))
	}
	return r
}

// counted lists reasons, the most frequent first.
func counted(m map[string]int64) []result.Counted {
	var out []result.Counted
	for what, n := range m {
		out = append(out, result.Counted{What: what, Rows: n})
	}
	slices.SortFunc(out, func(a, b result.Counted) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.What, b.What))
	})
	return out
}

// why says why nothing was taken over.
func (i *importer) why() string {
	if i.entries == 0 {
		return "its tables have no rows"
	}
	all := counted(i.skipped)
	return fmt.Sprintf("of %d rows %d were left out because %s", i.entries, all[0].Rows, all[0].What)
}
