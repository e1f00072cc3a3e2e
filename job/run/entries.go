package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/inspect"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/table"
)

// remoteShards are the running shards of a job, with what they hold.
type remoteShards struct {
	*rpc.Remote
	layout   *param.Layout
	features []model.Feature
}

// askShards calls f with the running shards of a job, which must be in processes of their own; instead says what else helps where they are not.
func askShards(ctx context.Context, cfg *spec.Config, how Asking, instead string, f func(remoteShards) error) (err error) {
	if !cfg.PS.Remote() {
		return fault.Config("job: the shards of this job are in the process that trains it (ps.addresses is empty), which nobody can ask; %s", instead)
	}
	remote, m, err := Connect(ctx, cfg, how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remote.Close(context.WithoutCancel(ctx))) }()
	return f(remoteShards{remote, m.Layout(), m.Features()})
}

// LookUpOptions say which rows are looked up.
type LookUpOptions struct {
	Asking
	Table string
	IDs   []int64
}

// LookUp returns whole rows of a running job, whose shards must be in processes of their own. Nothing is changed. Errors: [pipeline.ErrConfig] for a job
// without ps.addresses and a table that it has not, [pipeline.ErrUnavailable].
func LookUp(ctx context.Context, cfg *spec.Config, o LookUpOptions) (out *result.LookedUp, err error) {
	err = askShards(ctx, cfg, o.Asking, "look into its newest snapshot: monolith ps lookup DIR TABLE ID", func(s remoteShards) error {
		t, err := tableOf(s.layout, o.Table)
		if err != nil {
			return err
		}
		var rows table.Rows
		if err := s.Entries(ctx, t, o.IDs, &rows); err != nil {
			return fault.Unavailable(err)
		}
		shape := s.layout.Shape().Tables[t]
		out = inspect.Found(&shape, &rows, o.IDs)
		return nil
	})
	return out, err
}

// tableOf finds a table of a layout.
func tableOf(l *param.Layout, name string) (int, error) {
	names := make([]string, len(l.Tables))
	for t := range l.Tables {
		if names[t] = l.Tables[t].Name; names[t] == name {
			return t, nil
		}
	}
	return 0, fault.Config("job: it has no table %q; its tables are %q", name, names)
}

// EditOptions say which rows are edited, and how.
type EditOptions struct {
	Asking
	Op    param.Op
	Table string
	// IDs are those of a reinitialize, where neither From nor files name them.
	IDs []int64
	// From has a JSON object a line, as ps changes writes rows: with the id, for the other operations the weights of all segments, and for
	// [param.AssignState] the segments with their states.
	From io.Reader
	// Parquet are files, or patterns of them, in place of From, with the columns that an export of rows has: fid, weights_SEGMENT and state_SEGMENT, as the operation
	// takes them. Their order, which is that of names, is that of the request.
	Parquet []string
	// Arrow are the same in Arrow IPC files (Feather, version 2).
	Arrow []string
	// Components has the source of such files; the zero value: those of monolith.
	Components component.Set
	// Request names the request: one that was cut off is continued under its name. Empty: it gets one.
	Request string
	// DryRun only looks which ids have rows.
	DryRun bool
	// Begun, if not nil, is called with the request's name before anything is edited.
	Begun func(request string)
}

// editsAtOnce is how many rows are edited by one update.
const editsAtOnce = 1024

// Edit edits rows of a running job, whose shards must be in processes of their own, each once however often the request is made. Training continues.
// Errors: [pipeline.ErrConfig] for what the user can fix, [pipeline.ErrUnavailable].
func Edit(ctx context.Context, cfg *spec.Config, o EditOptions) (out *result.Edited, err error) {
	err = askShards(ctx, cfg, o.Asking, "give them processes of their own (docs/cluster.md)", func(s remoteShards) error {
		out, err = edit(ctx, s, o)
		return err
	})
	if out != nil {
		out.Durable = cfg.PS.Durability == "wal"
	}
	return out, err
}

func edit(ctx context.Context, s remoteShards, o EditOptions) (_ *result.Edited, err error) {
	t, err := tableOf(s.layout, o.Table)
	if err != nil {
		return nil, err
	}
	rows, err := readEdits(ctx, s.layout.Tables[t], o)
	if err != nil {
		return nil, err
	}
	ids, values, width := rows.ids, rows.values, rows.table.Width(o.Op)
	if o.Request == "" {
		o.Request = fmt.Sprintf("%x", ps.NewID())
	}
	out := &result.Edited{Table: o.Table, Operation: o.Op.String(), Request: o.Request, IDs: int64(len(ids)), DryRun: o.DryRun}
	before, err := s.Progress(ctx, ps.EditSource)
	if err != nil {
		return nil, fault.Unavailable(err)
	}
	out.Before = max(0, int64(before[o.Request].Position))
	if _, ok := before[o.Request]; ok && out.Before > out.IDs {
		return nil, fault.Config("job: request %q has edited %d ids already, and now has %d: it is another one", o.Request, out.Before, out.IDs)
	}
	var e *ps.Editor
	if !o.DryRun {
		if o.Begun != nil {
			o.Begun(o.Request)
		}
		cl, err := s.Client(ctx, "monolith ps "+out.Operation)
		if err != nil {
			return nil, fault.Unavailable(err)
		}
		defer func() { err = errors.Join(err, cl.Close()) }()
		if e, err = cl.Edit(ctx, o.Request); err != nil {
			return nil, fault.Unavailable(err)
		}
		out.Before = e.Done()
	}
	for at := out.Before; at < out.IDs; {
		to := min(at+editsAtOnce, out.IDs)
		var rows table.Rows
		if err := s.Entries(ctx, t, ids[at:to], &rows); err != nil {
			return out, fault.Unavailable(err)
		}
		if e != nil {
			if err := e.Apply(ctx, o.Op, t, ids[at:to], values[int(at)*width:int(to)*width]); err != nil {
				return out, fault.Unavailable(fmt.Errorf("request %q, continued by making it again under this name: %w", o.Request, err))
			}
			out.Edited += to - at
		}
		out.Existed += int64(len(rows.Keys))
		at = to
	}
	return out, nil
}

// Slots describes the rows that the running shards of a job have of each slot, and how much each shard has, while training continues. Where some do not answer it describes
// the others, and returns [pipeline.ErrUnavailable] beside that. Errors: as LookUp.
func Slots(ctx context.Context, cfg *spec.Config, how Asking) (out *result.RunningSlots, err error) {
	err = askShards(ctx, cfg, how, "describe its newest snapshot: monolith inspect DIR --slots", func(s remoteShards) error {
		tables, newest, held, err := s.TallyHeld(ctx)
		if err != nil {
			return fault.Unavailable(err)
		}
		out = &result.RunningSlots{Job: cfg.Name, Slots: []result.SlotInfo{}}
		var missing []error
		for _, h := range held {
			first, _ := ps.SplitAddr(h.Addr)
			of := result.RunningShard{Address: first, Rows: h.Stats.Rows(), Dense: h.Stats.DenseBytes}
			for _, t := range h.Stats.Tables {
				of.Bytes += t.Bytes
			}
			if h.Err != nil {
				of.Failed, missing = h.Err.Error(), append(missing, h.Err)
			}
			out.Shards = append(out.Shards, of)
		}
		if newest > 0 {
			at := time.UnixMicro(newest).UTC()
			out.Newest = &at
		}
		for t, tbl := range s.layout.Tables {
			rows := int64(0)
			for _, slot := range tables[t] {
				if slot != nil {
					rows += slot.Rows
				}
			}
			out.Rows += rows
			for slot, of := range tables[t] {
				if of == nil {
					continue
				}
				info := inspect.SlotOf(tbl.Name, slot, of, rows, tbl.RowBytes())
				for _, f := range s.features {
					if f.Kind == model.Sparse && f.Table == t && hasSlot(cfg, f.Name, slot) {
						info.Features = append(info.Features, f.Name)
					}
				}
				out.Slots = append(out.Slots, info)
			}
		}
		if len(missing) > 0 {
			return fault.Unavailable(fmt.Errorf("job: %d of %d shards do not answer, and are not in these figures: %w", len(missing), len(held), errors.Join(missing...)))
		}
		return nil
	})
	return out, err
}

// hasSlot reports whether a feature of a job has that slot.
func hasSlot(cfg *spec.Config, feature string, slot int) bool {
	return slices.ContainsFunc(cfg.Parse.Features, func(f spec.Feature) bool { return f.Name == feature && f.Slot != nil && *f.Slot == slot })
}

// ChangesOptions say which changes are given to whom.
type ChangesOptions struct {
	// Consumer is the name under which shards keep what has changed.
	Consumer string
	// Weights asks for whole rows.
	Weights bool
	// Follow continues until the context ends, and asks again after Every where nothing has changed; otherwise it ends when every shard has given
	// what had changed.
	Follow bool
	Every  time.Duration
	// Leave ends the registration, and gives nothing.
	Leave bool
	// Give gets each change. Flush is called when an answer has been given; what it returned nil for is acknowledged by the next question to the shard.
	Give  func(*result.Change) error
	Flush func() error
	// Logger gets trouble; nil discards.
	Logger *slog.Logger
}

// Changes gives a consumer the rows of a running job that have changed, and the ids whose rows have gone, since it was given them last: each at least
// once, whatever dies. Errors: as LookUp, and those of Give.
func Changes(ctx context.Context, cfg *spec.Config, o ChangesOptions) error {
	return askShards(ctx, cfg, Asking{Logger: o.Logger}, "give them processes of their own (docs/cluster.md)", func(s remoteShards) error {
		shape := s.layout.Shape()
		c := consuming{remoteShards: s, name: o.Consumer, rows: o.Weights, follow: o.Follow, every: o.Every, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
		c.deal = func(_ context.Context, shard int, answer *ps.Changes, some bool) error {
			return o.give(&shape.Tables[answer.Table], shard, answer, some)
		}
		if o.Leave {
			return c.leave(ctx)
		}
		return c.run(ctx)
	})
}

// give gives an answer; some says that its pass has had rows.
func (o *ChangesOptions) give(spec *param.TableShape, shard int, answer *ps.Changes, some bool) error {
	for _, e := range inspect.Entries(spec, &answer.Rows) {
		if err := o.Give(&result.Change{Shard: shard, Entry: &e, All: answer.All}); err != nil {
			return err
		}
	}
	for _, id := range answer.Removed {
		e := &result.Entry{Table: spec.Name, ID: id, Slot: param.SlotOf(id)}
		if err := o.Give(&result.Change{Shard: shard, Entry: e, Removed: true, All: answer.All}); err != nil {
			return err
		}
	}
	if answer.Whole && (some || answer.All) {
		if err := o.Give(&result.Change{Shard: shard, Whole: true, All: answer.All}); err != nil {
			return err
		}
	}
	return o.Flush()
}

// consuming deals with what a consumer is given by the shards of a job.
type consuming struct {
	remoteShards
	name   string
	rows   bool // whole rows
	follow bool // until the context ends, and after every where nothing has changed
	every  time.Duration
	log    *slog.Logger
	// deal deals with an answer, of a table that there is; some says that its pass has had rows. What it returned nil for is acknowledged by the next question to the shard.
	deal func(ctx context.Context, shard int, answer *ps.Changes, some bool) error
	// idle, if not nil, is called while changes are followed, once no shard has any, before the next wait.
	idle func(ctx context.Context) error
}

// consumer makes the consumer, of as many shards as there are.
func (c *consuming) consumer(ctx context.Context) (*ps.Consumer, int, error) {
	shards, err := c.NumShards(ctx)
	if err != nil {
		return nil, 0, fault.Unavailable(err)
	}
	return ps.NewConsumer(c.name, c, shards, c.rows), shards, nil
}

// leave ends the registration.
func (c *consuming) leave(ctx context.Context) error {
	from, _, err := c.consumer(ctx)
	if err == nil {
		err = fault.Unavailable(from.Leave(ctx))
	}
	return err
}

// run deals with what the shards have, again and again where that is to be followed.
func (c *consuming) run(ctx context.Context) error {
	for {
		from, shards, err := c.consumer(ctx)
		if err == nil {
			err = c.passes(ctx, from, shards)
		}
		if !c.follow || !errors.Is(err, ps.ErrRolledBack) {
			return err
		}
		// There are more or fewer shards now, which give all rows. Those that are not yet what shard 0 says they are get the time to be.
		if !wait(ctx, shardsChange) {
			return nil
		}
	}
}

// shardsChange is how long is waited before shards are asked again that are others than was thought.
const shardsChange = 100 * time.Millisecond

// passes is run for so many shards.
func (c *consuming) passes(ctx context.Context, from *ps.Consumer, shards int) error {
	for {
		quiet := true
		for shard := range shards {
			some, err := c.pass(ctx, from, shard, shards)
			if err != nil {
				return err
			}
			quiet = quiet && !some
		}
		if !c.follow {
			return nil
		}
		pause := time.Duration(0)
		if quiet {
			pause = c.every
			if c.idle != nil {
				if err := c.idle(ctx); err != nil {
					return err
				}
			}
		}
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// pass deals with a pass of one shard, and acknowledges it.
func (c *consuming) pass(ctx context.Context, from *ps.Consumer, shard, shards int) (some bool, err error) {
	for {
		answer, err := c.next(ctx, from, shard, shards)
		if err != nil || answer == nil {
			return some, err
		}
		if answer.Table < 0 || answer.Table >= len(c.layout.Tables) {
			return some, fmt.Errorf("job: shard %d has changes of table %d of %d: %w", shard, answer.Table, len(c.layout.Tables), ps.ErrMismatch)
		}
		some = some || len(answer.Rows.Keys)+len(answer.Removed) > 0
		if err := c.deal(ctx, shard, answer, some); err != nil {
			return some, err
		}
		if !answer.Whole {
			continue
		}
		if !c.follow { // what it answers comes again
			_, err = c.next(ctx, from, shard, shards)
		}
		return some, err
	}
}

// next asks a shard, again and again where it does not answer and changes are followed; nil: the context has ended.
func (c *consuming) next(ctx context.Context, from *ps.Consumer, shard, shards int) (*ps.Changes, error) {
	for {
		answer, err := from.Next(ctx, shard)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil && c.follow:
			return nil, nil
		case !c.follow || !errors.Is(err, ps.ErrUnreachable) && !errors.Is(err, ps.ErrNotReady) && !errors.Is(err, ps.ErrClosed):
			return nil, fault.Unavailable(err)
		}
		c.log.WarnContext(ctx, "a shard gives no changes", "shard", shard, "err", err)
		if !wait(ctx, c.every) {
			return nil, nil
		}
		// A shard that was removed is never ready again.
		if n, err := c.NumShards(ctx); err == nil && n != shards {
			return nil, fault.Unavailable(ps.OtherShards(shards, n))
		}
	}
}
