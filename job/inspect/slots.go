package inspect

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
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
	damaged, err := newestGood(path, func(path string) error {
		out, err = slotsOf(ctx, path, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Damaged = damaged
	return out, nil
}

// slotsOf reads one snapshot.
func slotsOf(ctx context.Context, path string, o SlotOptions) (out *result.SnapshotSlots, err error) {
	info, err := snapshot.ReadInfo(path)
	if err != nil {
		return nil, err
	}
	total := info.Rows()
	waits := false
	for _, f := range info.Files {
		if f.Kind == snapshot.KindWaiting {
			waits = waits || f.Rows > 0
			total += f.Rows
		}
	}
	s, err := snapshot.OpenWith(ctx, path, snapshot.OpenOptions{WeightsOnly: !waits})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l := &slotReader{ctx: ctx, s: s, progress: o.Progress, total: 2 * total}
	newest, err := l.newest()
	if err != nil {
		return nil, err
	}
	out = &result.SnapshotSlots{Path: path, Which: stored.WhichIs(info), ID: int64(info.ID), Created: info.Created, Rows: info.Rows(), Slots: []result.SlotInfo{}}
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
			of := a.result(t, bytes)
			of.Slot = slot
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

// each calls rows with the rows of a table and waiting with its fids that wait, until the context ends.
func (l *slotReader) each(tbl int, rows, waiting func(*table.Rows)) error {
	count := func(f func(*table.Rows)) func(*table.Rows) error {
		return func(r *table.Rows) error {
			f(r)
			l.read += int64(len(r.Keys))
			if l.progress != nil {
				l.progress(l.read, l.total)
			}
			return context.Cause(l.ctx)
		}
	}
	if err := l.s.Rows(tbl, count(rows)); err != nil {
		return err
	}
	return l.s.Waiting(tbl, snapshot.KindWaiting, count(waiting))
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

// table is what a table has of each slot, nil for those that it has nothing of. newest is the largest of all times.
func (l *slotReader) table(i int, t snapshot.Table, newest int64) ([]*slotSums, error) {
	found := make([]*slotSums, fid.NumSlots)
	at := func(key int64) *slotSums {
		slot := param.SlotOf(key)
		if found[slot] == nil {
			found[slot] = &slotSums{}
		}
		return found[slot]
	}
	dim := t.Dim()
	err := l.each(i, func(r *table.Rows) {
		for j, key := range r.Keys {
			at(key).add(r.Times[j], newest, r.Counts[j], r.Weights[j*dim:(j+1)*dim])
		}
	}, func(r *table.Rows) {
		for _, key := range r.Keys {
			at(key).waiting++
		}
	})
	return found, err
}

// slotSums are what rows of one slot add up to.
type slotSums struct {
	rows, once, waiting int64
	timeless            int64
	occurrences         uint64
	norms               float64
	ages                ages
}

// add adds a row.
func (s *slotSums) add(at, newest int64, count uint64, weights []float32) {
	s.rows++
	if count == 1 {
		s.once++
	}
	var carry uint64
	if s.occurrences, carry = bits.Add64(s.occurrences, count, 0); carry > 0 {
		s.occurrences = math.MaxUint64
	}
	squares := 0. // finite, as all weights of a snapshot are
	for _, w := range weights {
		squares += float64(w) * float64(w)
	}
	s.norms += math.Sqrt(squares)
	if at <= 0 {
		s.timeless++
	} else {
		s.ages.add(uint64(newest - at))
	}
}

func (s *slotSums) result(t snapshot.Table, rowBytes int64) result.SlotInfo {
	out := result.SlotInfo{
		Table: t.Name, Rows: s.rows, Bytes: s.rows * rowBytes, Occurrences: s.occurrences, Once: s.once, Timeless: s.timeless, Waiting: s.waiting,
	}
	if s.rows > 0 {
		out.Share, out.MeanNorm = float64(s.rows)/float64(t.Rows), s.norms/float64(s.rows)
	}
	if s.ages.n > 0 {
		const second = 1e6
		out.Ages = &result.SlotAges{P50: float64(s.ages.quantile(50)) / second, P90: float64(s.ages.quantile(90)) / second, Max: float64(s.ages.max) / second}
	}
	return out
}

// ageBits makes buckets 2^-ageBits of their values wide.
const ageBits = 5

// ages is a histogram of microseconds: below 64 of each, above that in 32 buckets for each power of two. A quantile is the upper end of
// the bucket that it lies in, so it is exact below 64 µs, and above that at most 1/32 more than it is and never less. It does not depend on the order of
// the rows. There is memory for the powers of two that occur alone.
type ages struct {
	powers [65 - ageBits]*[1 << ageBits]int64
	n      int64
	max    uint64
}

// add counts an age.
func (a *ages) add(age uint64) {
	a.n++
	a.max = max(a.max, age)
	power := max(0, bits.Len64(age)-1-ageBits)
	if age>>ageBits > 0 {
		power++
	}
	if a.powers[power] == nil {
		a.powers[power] = new([1 << ageBits]int64)
	}
	a.powers[power][age>>max(0, power-1)&(1<<ageBits-1)]++
}

// quantile is the age that percent of a hundred rows do not exceed: that of rank ⌈n·percent/100⌉. n is at least 1.
func (a *ages) quantile(percent int64) uint64 {
	left := a.n/100*percent + (a.n%100*percent+99)/100
	for power, of := range a.powers {
		if of == nil {
			continue
		}
		for i, n := range of {
			if left -= n; left > 0 {
				continue
			}
			if power == 0 {
				return uint64(i)
			}
			low := uint64(1<<ageBits|i) << (power - 1)
			return min(a.max, low+(1<<(power-1)-1))
		}
	}
	return a.max
}

// newestGood calls use with the snapshots that a path stands for, the newest first, until one is not damaged, and returns what is wrong with
// those before it.
func newestGood(path string, use func(path string) error) (damaged []string, err error) {
	entries, err := stored.FindSnapshots(path)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, e := range entries {
		err := e.Err
		if err == nil {
			err = use(e.Path)
		}
		if err == nil {
			for _, f := range faults {
				damaged = append(damaged, f.Error())
			}
			return damaged, nil
		}
		faults = append(faults, err)
		if !errors.Is(err, snapshot.ErrCorrupt) {
			break
		}
	}
	return nil, errors.Join(faults...)
}
