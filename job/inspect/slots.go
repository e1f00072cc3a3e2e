package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// SlotOptions say how the slots of a snapshot are looked at. The zero value is right.
type SlotOptions struct {
	// Progress is called after every part of the rows, by the goroutine that reads, with how many are read and how many that will
	// be: each row is read twice. nil: nobody is told.
	Progress func(read, total int64)
}

// Slots describes the rows of each table of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots,
// by their slots. The rows are read twice, for the newest time and then for all else, and never held: memory goes by the
// number of slots, and is 16 KiB for each at most. Optimizers' state is not read, unless fids wait. Errors: [snapshot.ErrCorrupt] where
// none is good, the context's.
func Slots(ctx context.Context, path string, o SlotOptions) (out *result.SnapshotSlots, err error) {
	damaged, err := newestGood(ctx, path, func(f *stored.Folder, path string) error {
		out, err = slotsOf(ctx, f, path, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Damaged = damaged
	return out, nil
}

// slotsOf reads one snapshot.
func slotsOf(ctx context.Context, f *stored.Folder, path string, o SlotOptions) (out *result.SnapshotSlots, err error) {
	info, err := snapshot.ReadInfoIn(f.FS, path)
	if err != nil {
		return nil, err
	}
	total := info.Rows()
	waits := false
	for _, file := range info.Files {
		if file.Kind == snapshot.KindWaiting {
			waits = waits || file.Rows > 0
			total += file.Rows
		}
	}
	s, err := snapshot.OpenWith(ctx, path, snapshot.OpenOptions{FS: f.FS, WeightsOnly: !waits})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l := &slotReader{ctx: ctx, s: s, progress: o.Progress, total: 2 * total}
	newest, err := l.newest()
	if err != nil {
		return nil, err
	}
	out = &result.SnapshotSlots{Path: f.Name(path), Which: stored.WhichIs(f.FS, info), ID: int64(info.ID), Created: info.Created, Rows: info.Rows(), Slots: []result.SlotInfo{}}
	if newest != 0 {
		at := time.UnixMicro(newest).UTC()
		out.Newest = &at
	}
	model := &result.SnapshotInfo{Recipe: info.Recipe}
	describeModel(info, model)
	for i, t := range info.Tables {
		found, err := l.table(i, t, newest)
		if err != nil {
			return nil, err
		}
		bytes := t.RowBytes()
		for slot, a := range found {
			if a == nil {
				continue
			}
			of := SlotOf(t.Name, slot, a, t.Rows, bytes)
			for _, f := range model.Features {
				if f.Kind == "sparse" && f.Column != "" && f.Table == t.Name && f.Slot == slot {
					of.Features = append(of.Features, f.Name)
				}
			}
			out.Slots = append(out.Slots, of)
		}
	}
	return out, nil
}

// slotReader reads all rows of a snapshot.
type slotReader struct {
	ctx         context.Context
	s           *snapshot.Snapshot
	progress    func(read, total int64)
	read, total int64
}

// counted is f that says how far it is, and ends with the context.
func (l *slotReader) counted(f func(*table.Rows)) func(*table.Rows) error {
	return func(r *table.Rows) error {
		f(r)
		l.read += int64(len(r.Keys))
		if l.progress != nil {
			l.progress(l.read, l.total)
		}
		return context.Cause(l.ctx)
	}
}

// each calls rows with the rows of a table and waiting with its fids that wait, until the context ends.
func (l *slotReader) each(tbl int, rows, waiting func(*table.Rows)) error {
	if err := l.s.Rows(tbl, l.counted(rows)); err != nil {
		return err
	}
	return l.s.Waiting(tbl, snapshot.KindWaiting, l.counted(waiting))
}

// newest is the largest time in the snapshot, 0 where none has any.
func (l *slotReader) newest() (newest int64, err error) {
	latest := func(r *table.Rows) {
		for _, t := range r.Times {
			newest = max(newest, t)
		}
	}
	for t := range l.s.Info().Tables {
		if err := l.each(t, latest, latest); err != nil {
			return 0, err
		}
	}
	return newest, nil
}

// table is what a table has of each slot. newest is the largest of all times.
func (l *slotReader) table(i int, t snapshot.Table, newest int64) (tally.Slots, error) {
	found, dim := tally.New(), t.Dim()
	err := l.each(i, func(r *table.Rows) { found.Rows(r, dim, newest) }, found.Waiting)
	return found, err
}

// SlotOf describes what a table of so many rows has of one slot. A row takes so many bytes.
func SlotOf(tbl string, slot int, s *tally.Slot, rows, rowBytes int64) result.SlotInfo {
	out := result.SlotInfo{
		Table: tbl, Slot: slot, Rows: s.Rows, Bytes: s.Rows * rowBytes, Occurrences: s.Occurrences, Once: s.Once, Timeless: s.Timeless, Waiting: s.Waiting,
	}
	if s.Rows > 0 {
		out.Share, out.MeanNorm = float64(s.Rows)/float64(rows), s.Norms/float64(s.Rows)
	}
	if s.Ages.N > 0 {
		const second = 1e6
		out.Ages = &result.SlotAges{P50: float64(s.Ages.Quantile(50)) / second, P90: float64(s.Ages.Quantile(90)) / second, Max: float64(s.Ages.Max) / second}
	}
	return out
}

// newestGood calls use with the snapshots that a path stands for, the newest first, until one is not damaged, and returns what is wrong with
// those before it.
func newestGood(ctx context.Context, text string, use func(f *stored.Folder, path string) error) (damaged []string, err error) {
	f, err := stored.OpenFolder(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, faults, err := f.Use(func(info *snapshot.Info) error { return use(f, info.Path) })
	return stored.Texts(faults), err
}
