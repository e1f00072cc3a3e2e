package inspect

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Model describes a model by its graph. FLOPs are those of examples whose sparse features have so many entries each. Errors: [pipeline.ErrConfig]
// for a model that cannot be written as a graph.
func Model(m model.Model, entries float64) (*result.ModelInfo, error) {
	if g, ok := m.(*graph.Graph); ok {
		return modelOf(g, entries), nil
	}
	b, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	g, err := graph.Unmarshal(b)
	if err != nil {
		return nil, err
	}
	return modelOf(g, entries), nil
}

// SnapshotModel describes the model of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots. All bytes are read, so that the answer is not that of a damaged one. Errors:
// [pipeline.ErrConfig] where the snapshot has no model, [snapshot.ErrCorrupt] where none is good.
func SnapshotModel(ctx context.Context, path string, entries float64) (out *result.ModelInfo, err error) {
	damaged, err := newestGood(ctx, path, func(f *stored.Folder, path string) error {
		s, err := snapshot.OpenWith(ctx, path, snapshot.OpenOptions{FS: f.FS})
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			return err
		}
		info, err := snapshot.ReadInfoIn(f.FS, path)
		if err != nil {
			return err
		}
		if info.Model == nil {
			return fault.Config("job: snapshot %s has no model: the program that trained it did not store one", f.Name(path))
		}
		g, err := graph.Unmarshal(info.Model.Graph)
		if err != nil {
			return err
		}
		out = modelOf(g, entries)
		out.Snapshot, out.Model = f.Name(path), info.Model.Name
		for i := range out.Tables {
			t := &out.Tables[i]
			for _, is := range info.Tables {
				if is.Name == t.Name {
					t.Rows = is.Rows
					out.RowParameters += is.Rows * int64(t.Dim)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Damaged = damaged
	return out, nil
}

func modelOf(g *graph.Graph, entries float64) *result.ModelInfo {
	const batch = 512 // that of training, unless a job says otherwise
	out := &result.ModelInfo{FLOPs: g.FLOPs(entries), Entries: entries, MemoryBatch: batch, DOT: g.DOT(entries)}
	out.PredictBytes, out.TrainBytes = g.Memory(batch, entries)
	for _, o := range g.Operators() {
		out.Operators = append(out.Operators, result.OperatorInfo{
			ID: o.ID, Inputs: append([]int{}, o.Inputs...), Operator: o.Text, Shape: o.Shape.String(), FLOPs: g.OperatorFLOPs(o.ID, entries),
		})
	}
	for _, t := range g.Layout().Dense {
		out.Tensors = append(out.Tensors, result.ModelTensor{
			Name: t.Name, Shape: t.Shape, Parameters: int64(t.Len()), Init: t.Init.String(), Optimizer: t.Optimizer.String(),
		})
		out.Parameters += int64(t.Len())
	}
	for _, t := range g.Layout().Tables {
		of := result.ModelTable{Name: t.Name, Dim: t.Dim()}
		for _, s := range t.Segments {
			of.Segments = append(of.Segments, result.ModelSegment{Name: s.Name, Dim: s.Dim, Init: s.Init.String(), Optimizer: s.Optimizer.String()})
		}
		out.Tables = append(out.Tables, of)
	}
	for _, h := range g.Heads() {
		out.Heads = append(out.Heads, result.ModelHead{Name: h.Name, Loss: h.Loss, Weight: h.Weight})
	}
	return out
}

// NearestOptions say which rows [Nearest] compares.
type NearestOptions struct {
	// Table is the table's name, ID the row that others are compared with, K how many are wanted, at least 1.
	Table string
	ID    int64
	K     int
	// Segment is the part of the rows that is compared; empty: the widest, of equal ones the first.
	Segment string
	// AllSlots compares with rows of other slots than that of ID too.
	AllSlots bool
	// Progress is as that of [SlotOptions].
	Progress func(read, total int64)
}

// Nearest returns the K rows of a table of a snapshot, or of the newest good one of a job's dir or of a folder of snapshots, whose vectors have the
// largest cosine with that of a row. Vectors are the stored weights; those of length 0 have no direction, and are not compared. The rows of the
// table are read twice and not held. Errors: [pipeline.ErrConfig] for a table, a segment or a row that is not there, or a vector of length 0;
// [snapshot.ErrCorrupt] where no snapshot is good; the context's.
func Nearest(ctx context.Context, path string, o NearestOptions) (out *result.NearestRows, err error) {
	damaged, err := newestGood(ctx, path, func(f *stored.Folder, path string) error {
		out, err = nearestOf(ctx, f, path, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Damaged = damaged
	return out, nil
}

func nearestOf(ctx context.Context, f *stored.Folder, path string, o NearestOptions) (out *result.NearestRows, err error) {
	s, err := snapshot.OpenWith(ctx, path, snapshot.OpenOptions{FS: f.FS, WeightsOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	tables := s.Info().Tables
	t, err := tableNamed(f.Name(path), tables, o.Table)
	if err != nil {
		return nil, err
	}
	shape := tables[t].TableShape
	segment, at, err := segmentOf(&shape, o.Segment)
	if err != nil {
		return nil, err
	}
	l := &slotReader{ctx: ctx, s: s, progress: o.Progress, total: 2 * tables[t].Rows}
	dim := shape.Dim()
	vector := func(r *table.Rows, i int) []float32 { return r.Weights[i*dim+at:][:segment.Dim] }

	var query []float32
	err = s.Rows(t, l.counted(func(r *table.Rows) {
		if i := slices.Index(r.Keys, o.ID); i >= 0 {
			query = slices.Clone(vector(r, i))
		}
	}))
	if err != nil {
		return nil, err
	}
	if query == nil {
		return nil, fault.Config("job: table %q of snapshot %s has no row of id %d (slot %d): an id is a number with the slot in it, or SLOT:SIGNATURE, such as 2:17; monolith inspect shows the slots of features, monolith export --format parquet writes all ids",
			o.Table, path, o.ID, param.SlotOf(o.ID))
	}
	length := norm(query)
	if length == 0 {
		return nil, fault.Config("job: segment %q of the row of id %d is zero in all %d places: it has no direction to compare", segment.Name, o.ID, segment.Dim)
	}

	out = &result.NearestRows{Snapshot: f.Name(path), Table: o.Table, Segment: segment.Name, ID: o.ID, Slot: param.SlotOf(o.ID)}
	var near nearRows
	err = s.Rows(t, l.counted(func(r *table.Rows) {
		for i, id := range r.Keys {
			slot := param.SlotOf(id)
			if id == o.ID || slot != out.Slot && !o.AllSlots {
				continue
			}
			v := vector(r, i)
			n := norm(v)
			if n == 0 {
				continue
			}
			out.Compared++
			found := result.NearRow{ID: id, Slot: slot, Cosine: max(-1, min(1, dot(query, v)/(length*n))), Occurrences: r.Counts[i]}
			if len(near) == o.K && closer(&found, &near[0]) >= 0 {
				continue
			}
			if r.Times[i] > 0 {
				when := time.UnixMicro(r.Times[i]).UTC()
				found.Updated = &when
			}
			if heap.Push(&near, found); len(near) > o.K {
				heap.Pop(&near)
			}
		}
	}))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(near, func(a, b result.NearRow) int { return closer(&a, &b) })
	out.Rows = append([]result.NearRow{}, near...)
	return out, nil
}

// segmentOf is a segment of a table, and where in a row it begins.
func segmentOf(t *param.TableShape, name string) (found param.SegmentShape, at int, err error) {
	var names []string
	where := 0
	for _, s := range t.Segments {
		if names = append(names, s.Name); s.Name == name || name == "" && s.Dim > found.Dim {
			found, at = s, where
		}
		where += s.Dim
	}
	if found.Dim == 0 {
		return found, 0, fault.Config("job: rows of table %q have no segment %q%s", t.Name, name, nearest.Suggest(name, names))
	}
	return found, at, nil
}

// closer orders rows, the nearest first.
func closer(a, b *result.NearRow) int {
	return cmp.Or(cmp.Compare(b.Cosine, a.Cosine), cmp.Compare(a.ID, b.ID))
}

// nearRows is a heap whose root is the farthest.
type nearRows []result.NearRow

func (n nearRows) Len() int           { return len(n) }
func (n nearRows) Less(i, j int) bool { return closer(&n[i], &n[j]) > 0 }
func (n nearRows) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *nearRows) Push(x any)        { *n = append(*n, x.(result.NearRow)) }
func (n *nearRows) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

func norm(v []float32) float64 { return math.Sqrt(dot(v, v)) }

func dot(a, b []float32) float64 {
	sum := 0.0
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}
