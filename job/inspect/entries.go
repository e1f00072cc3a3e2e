package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Entries describes rows of a table. Rows without weights have keys, times and counts alone.
func Entries(spec *param.TableShape, rows *table.Rows) []result.Entry {
	out := make([]result.Entry, len(rows.Keys))
	dim, stateDim := spec.Dim(), spec.StateDim()
	for i, id := range rows.Keys {
		e := result.Entry{Table: spec.Name, ID: id, Slot: param.SlotOf(id), Occurrences: rows.Counts[i]}
		if rows.Times[i] > 0 {
			at := time.UnixMicro(rows.Times[i]).UTC()
			e.Updated = &at
		}
		if len(rows.Weights) == len(rows.Keys)*dim {
			e.Weights = rows.Weights[i*dim:][:dim]
			s := 0
			for _, seg := range spec.Segments {
				of := result.EntrySegment{Name: seg.Name, Dim: seg.Dim, Optimizer: seg.Optimizer}
				if n := seg.StateDim; len(rows.State) == len(rows.Keys)*stateDim {
					of.State = rows.State[i*stateDim+s:][:n]
					s += n
				}
				e.Segments = append(e.Segments, of)
			}
		}
		out[i] = e
	}
	return out
}

// Found describes the rows that were found of some ids.
func Found(spec *param.TableShape, rows *table.Rows, ids []int64) *result.LookedUp {
	out := &result.LookedUp{Entries: Entries(spec, rows), Missing: []int64{}}
	at := map[int64]int{}
	for i, k := range rows.Keys {
		at[k] = i
	}
	place := map[int64]int{}
	for i, id := range ids {
		if _, ok := at[id]; !ok {
			out.Missing = append(out.Missing, id)
		}
		place[id] = i
	}
	slices.SortFunc(out.Entries, func(a, b result.Entry) int { return place[a.ID] - place[b.ID] })
	return out
}

// LookUp returns whole rows of a table of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots. It reads the rows of the table once,
// and holds those that are looked for. Errors: [pipeline.ErrConfig] for a table that is not there, [snapshot.ErrCorrupt] where none is
// good, the context's.
func LookUp(ctx context.Context, path, tableName string, ids []int64) (out *result.LookedUp, err error) {
	damaged, err := newestGood(ctx, path, func(f *stored.Folder, path string) error {
		out, err = rowsOf(ctx, f, path, tableName, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Damaged = damaged
	return out, nil
}

// rowsOf is LookUp of one snapshot.
func rowsOf(ctx context.Context, f *stored.Folder, path, tableName string, ids []int64) (out *result.LookedUp, err error) {
	s, err := snapshot.OpenWith(ctx, path, snapshot.OpenOptions{FS: f.FS})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	tables := s.Info().Tables
	t, err := tableNamed(f.Name(path), tables, tableName)
	if err != nil {
		return nil, err
	}
	wanted := map[int64]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	shape := tables[t].TableShape
	dim, stateDim := shape.Dim(), shape.StateDim()
	var found table.Rows
	err = s.Rows(t, func(r *table.Rows) error {
		for i, id := range r.Keys {
			if !wanted[id] {
				continue
			}
			found.Keys, found.Times, found.Counts = append(found.Keys, id), append(found.Times, r.Times[i]), append(found.Counts, r.Counts[i])
			found.Weights, found.State = append(found.Weights, r.Weights[i*dim:][:dim]...), append(found.State, r.State[i*stateDim:][:stateDim]...)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return nil, err
	}
	out = Found(&shape, &found, ids)
	out.Snapshot = path
	return out, nil
}

// tableNamed is the number of a table of a snapshot.
func tableNamed(path string, tables []snapshot.Table, name string) (int, error) {
	t := slices.IndexFunc(tables, func(x snapshot.Table) bool { return x.Name == name })
	if t < 0 {
		names := make([]string, len(tables))
		for i, x := range tables {
			names[i] = x.Name
		}
		return 0, fault.Config("job: snapshot %s has no table %q; its tables are %q", path, name, names)
	}
	return t, nil
}
