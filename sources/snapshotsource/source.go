// Package snapshotsource reads the rows of a table of a snapshot: what the parameter server has of each feature id.
package snapshotsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// The columns of a batch, beside [pipeline.ColTime], when a row was updated last, and [pipeline.ColPosition].
const (
	// ColFID is the feature id, int64, and ColSlot the slot in it, int32.
	ColFID  = "fid"
	ColSlot = "slot"
	// ColCount is how many updates a row has had, int64.
	ColCount = "count"
	// WeightsOf and StateOf, with the name of a segment behind them, are the weights of a segment and its optimizer's state: fixed-size lists
	// of float32.
	WeightsOf = "weights_"
	StateOf   = "state_"
	// ColWeights are the weights of all segments side by side, in place of one column for each ([Options.Whole]).
	ColWeights = "weights"
)

// Options say which rows are read, and how. Table is required; the zero value of everything else works.
type Options struct {
	// Table is the name of the table.
	Table string
	// Slots are the slots whose rows are read; empty: all.
	Slots []int
	// UpdatedAfter leaves out rows that were updated last at this time or before it, in microseconds since 1970; 0: none.
	UpdatedAfter int64
	// MinNorm leaves out rows whose weights, those of all segments taken together, have a smaller Euclidean norm; 0: none.
	MinNorm float64
	// MinCount leaves out rows that have had fewer updates; 0: none.
	MinCount int64
	// State adds the optimizers' state.
	State bool
	// Whole reads ids and weights alone, the weights of all segments in one column: batches have the columns [ColFID], [ColWeights] and [pipeline.ColPosition]. Not with State.
	Whole bool
	// RowsPerSplit cuts what a shard has written into splits of so many rows, which are read side by side. Default: as few as have a
	// million rows or more, at most 32 of all shards together, because each that is being read holds a record batch in memory.
	RowsPerSplit int64
	// BatchRows is how many rows a batch has at most. Default 8192.
	BatchRows int
	// FS is where the snapshot lies; nil is [fsx.Local].
	FS fsx.FS
	// Ahead reads rows while the files that they lie in are being verified, and not behind that: a caller that makes something of them must not show it before [Source.Settle] has said that
	// they are what the snapshot holds. A reader does not end before.
	Ahead bool
}

// Source reads one table of a snapshot. A split is a range of the rows that one shard has written, a position the number of a row in them.
// Its methods may be called from several goroutines at once.
type Source struct {
	info   *snapshot.Info
	table  int
	opts   Options
	schema *arrow.Schema

	mu    sync.Mutex
	sound map[int]chan bool // by shard: holds whether its files were verified in this process; taken while that is found out
}

var _ pipeline.Source[*pipeline.Batch] = (*Source)(nil)

// New describes a source of a snapshot whose manifest was read ([snapshot.ReadInfo]). It opens nothing. Errors: [pipeline.ErrConfig], all
// faults at once.
func New(info *snapshot.Info, opts Options) (*Source, error) {
	var faults []error
	bad := func(text string, args ...any) {
		faults = append(faults, fmt.Errorf("snapshotsource: "+text+": %w", append(args, pipeline.ErrConfig)...))
	}
	s := &Source{info: info, opts: opts, sound: map[int]chan bool{}}
	var names []string
	s.table = -1
	for i, t := range info.Tables {
		names = append(names, t.Name)
		if t.Name == opts.Table {
			s.table = i
		}
	}
	if s.table < 0 {
		bad("the snapshot has no table %q; it has %q", opts.Table, names)
	}
	for _, slot := range opts.Slots {
		if slot < 0 || slot >= fid.NumSlots {
			bad("slot %d is none of 0 to %d", slot, fid.NumSlots-1)
		}
	}
	if opts.Whole && opts.State {
		bad("Whole has weights alone, and State is set")
	}
	if opts.UpdatedAfter < 0 || opts.MinNorm < 0 || math.IsNaN(opts.MinNorm) || opts.MinCount < 0 || opts.RowsPerSplit < 0 || opts.BatchRows < 0 {
		bad("UpdatedAfter %d, MinNorm %v, MinCount %d, RowsPerSplit %d and BatchRows %d must not be negative", opts.UpdatedAfter, opts.MinNorm, opts.MinCount, opts.RowsPerSplit, opts.BatchRows)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	s.opts.BatchRows = cmp.Or(opts.BatchRows, 8192)
	s.schema = s.columns()
	return s, nil
}

// columns is the schema.
func (s *Source) columns() *arrow.Schema {
	list := func(dim int) arrow.DataType {
		return arrow.FixedSizeListOfNonNullable(int32(dim), arrow.PrimitiveTypes.Float32)
	}
	position := arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}
	if s.opts.Whole {
		return arrow.NewSchema([]arrow.Field{{Name: ColFID, Type: arrow.PrimitiveTypes.Int64}, {Name: ColWeights, Type: list(s.info.Tables[s.table].Dim())}, position}, nil)
	}
	fields := []arrow.Field{
		{Name: ColFID, Type: arrow.PrimitiveTypes.Int64},
		{Name: ColSlot, Type: arrow.PrimitiveTypes.Int32},
		{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
		{Name: ColCount, Type: arrow.PrimitiveTypes.Int64},
	}
	for _, seg := range s.info.Tables[s.table].Segments {
		fields = append(fields, arrow.Field{Name: WeightsOf + seg.Name, Type: list(seg.Dim)})
	}
	for _, seg := range s.info.Tables[s.table].Segments {
		if s.opts.State && seg.StateDim > 0 {
			fields = append(fields, arrow.Field{Name: StateOf + seg.Name, Type: list(seg.StateDim)})
		}
	}
	return arrow.NewSchema(append(fields, position), nil)
}

// Schema implements [pipeline.Source].
func (s *Source) Schema() *arrow.Schema { return s.schema }

// Bounded implements [pipeline.Source].
func (*Source) Bounded() bool { return true }

// String implements [pipeline.Source].
func (s *Source) String() string {
	return fmt.Sprintf("%s table %s", filepath.Base(s.info.Path), s.opts.Table)
}

// Fingerprint implements [pipeline.Source]: what the snapshot holds, not where it lies.
func (s *Source) Fingerprint() string {
	holds := s.info.Digest
	if holds == "" { // an incremental one has none
		holds = fmt.Sprintf("%d of %d", s.info.ID, s.info.Created.UnixNano())
	}
	return pipeline.Fingerprint("snapshot "+holds, s.opts, "BatchRows", "FS", "Ahead")
}

// mostSplits bounds the splits of all shards together.
const mostSplits = 32

// perSplit is how many rows a split of a file has.
func (s *Source) perSplit(rows int64) int64 {
	if s.opts.RowsPerSplit > 0 {
		return s.opts.RowsPerSplit
	}
	splits := min((rows+1<<20-1)>>20, max(1, mostSplits/int64(s.info.Shards)))
	return max(1, (rows+splits-1)/max(splits, 1))
}

// file is what a shard has written of the table.
func (s *Source) file(shard int) (snapshot.FileInfo, bool) {
	i := slices.IndexFunc(s.info.Files, func(f snapshot.FileInfo) bool {
		return f.Kind == snapshot.KindRows && f.Table == s.table && f.Shard == shard
	})
	if i < 0 {
		return snapshot.FileInfo{}, false
	}
	return s.info.Files[i], true
}

// Splits implements [pipeline.Source]. It does no I/O: the manifest says how many rows each shard has.
func (s *Source) Splits(context.Context) ([]pipeline.Split, error) {
	var out []pipeline.Split
	for shard := range s.info.Shards {
		f, ok := s.file(shard)
		if !ok {
			continue
		}
		rows := s.info.TotalRows(f)
		for from, part := int64(0), 0; from < rows; part++ {
			to := min(from+s.perSplit(rows), rows)
			out = append(out, pipeline.Split{Name: fmt.Sprintf("shard-%05d-part-%06d", shard, part), Start: pipeline.Position(from), End: pipeline.Position(to), Rows: to - from})
			from = to
		}
	}
	return out, nil
}

// Open implements [pipeline.Source]. The files of a shard are verified by their checksums before the first of its splits in this process is
// read; while it is, with [Options].Ahead. Errors: [snapshot.ErrCorrupt], which names the file, as [pipeline.ErrBadData] too; [pipeline.ErrConfig] for a split of something else;
// [pipeline.ErrUnavailable].
func (s *Source) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Batch], error) {
	shard, err := shardOf(split.Name)
	if err != nil {
		return nil, err
	}
	f, ok := s.file(shard)
	if !ok || split.Start < 0 || split.End < split.Start || int64(split.End) > s.info.TotalRows(f) || from < split.Start || from > split.End {
		return nil, fmt.Errorf("snapshotsource: position %d of split %q, rows %d to %d, is none of %s: %w", from, split.Name, split.Start, split.End, s, pipeline.ErrConfig)
	}
	if s.opts.Ahead {
		c := s.begin(ctx, shard)
		rows, err := s.read(ctx, shard, int64(from))
		if err != nil {
			err = s.fault(cmp.Or(c.settle(ctx), err))
			c.close()
			return nil, err
		}
		return newReader(s, env, split, from, rows, c), nil
	}
	if err := s.settle(ctx, shard); err != nil {
		return nil, s.fault(err)
	}
	rows, err := s.read(ctx, shard, int64(from))
	if err != nil {
		return nil, s.fault(err)
	}
	return newReader(s, env, split, from, rows, nil), nil
}

// shardOf is the shard of a split by its name.
func shardOf(split string) (shard int, err error) {
	var part int
	if n, err := fmt.Sscanf(split, "shard-%d-part-%d", &shard, &part); err != nil || n != 2 {
		return 0, fmt.Errorf("snapshotsource: split %q is none of a snapshot: %w", split, pipeline.ErrConfig)
	}
	return shard, nil
}

// read opens the files of a shard at a row, verified or not.
func (s *Source) read(ctx context.Context, shard int, row int64) (*snapshot.RowReader, error) {
	rows, err := snapshot.OpenRows(ctx, s.info, s.table, shard, snapshot.RowsOptions{FS: s.opts.FS, WeightsOnly: !s.opts.State, Verified: true})
	if err != nil {
		return nil, err
	}
	if err := rows.SeekRow(row); err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	return rows, nil
}

// turn is the turn to verify the files of a shard, and holds whether they were.
func (s *Source) turn(shard int) chan bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := s.sound[shard]
	if turn == nil {
		turn = make(chan bool, 1)
		turn <- false
		s.sound[shard] = turn
	}
	return turn
}

// settle returns when the files of a shard are verified, by itself or by somebody who does it at the moment: once in a process.
func (s *Source) settle(ctx context.Context, shard int) error {
	turn := s.turn(shard)
	select {
	case sound := <-turn:
		if sound {
			turn <- true
			return nil
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := s.verify(ctx, shard)
	turn <- err == nil
	return err
}

func (s *Source) verify(ctx context.Context, shard int) error {
	r, err := snapshot.OpenRows(ctx, s.info, s.table, shard, snapshot.RowsOptions{FS: s.opts.FS, WeightsOnly: !s.opts.State})
	if err != nil {
		return err
	}
	return r.Close()
}

// Settle returns when the files that a split lies in are verified. Errors: as Open.
func (s *Source) Settle(ctx context.Context, split string) error {
	shard, err := shardOf(split)
	if err == nil {
		if err = s.settle(ctx, shard); err != nil {
			err = s.fault(err)
		}
	}
	return err
}

// SettleAll is Settle for all splits that were opened in this process.
func (s *Source) SettleAll(ctx context.Context) error {
	s.mu.Lock()
	shards := slices.Sorted(maps.Keys(s.sound))
	s.mu.Unlock()
	for _, shard := range shards {
		if err := s.settle(ctx, shard); err != nil {
			return s.fault(err)
		}
	}
	return nil
}

// check verifies the files of a shard beside who reads them.
type check struct {
	source *Source
	shard  int
	cancel func()
	done   chan struct{} // closed behind err; nil: somebody else verifies
	err    error
}

// begin begins to verify a shard, unless that is done or somebody does it: then it is nil, or waits for them.
func (s *Source) begin(ctx context.Context, shard int) *check {
	turn, c := s.turn(shard), &check{source: s, shard: shard}
	select {
	case sound := <-turn:
		if sound {
			turn <- true
			return nil
		}
	default:
		return c
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		c.err = s.verify(ctx, shard)
		turn <- c.err == nil
	}()
	return c
}

// settle returns when the files are verified.
func (c *check) settle(ctx context.Context) error {
	switch {
	case c == nil:
		return nil
	case c.done == nil:
		return c.source.settle(ctx, c.shard)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close gives up what is not verified yet, and joins who does it.
func (c *check) close() {
	if c != nil && c.done != nil {
		c.cancel()
		<-c.done
	}
}

// fault gives an error of a snapshot the class that runners and commands know.
func (s *Source) fault(err error) error {
	switch {
	case errors.Is(err, snapshot.ErrCorrupt):
		return fmt.Errorf("%w: %w; use an older snapshot", err, pipeline.ErrBadData)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("snapshotsource: %w: %w", err, pipeline.ErrUnavailable)
	}
	return fmt.Errorf("snapshotsource: %w", err)
}
