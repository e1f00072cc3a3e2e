// Package export describes a trained model outside training: what a file for another system, a prediction or a server is made of.
//
// A [Model] is that of one snapshot, whatever trained it. It is small but for the dense weights: embedding rows are read table by table and
// never held ([Model.Rows]). Packages below write it as files; package native also reads them.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// ErrNoGraph means that a snapshot does not say how its model computes: a loss or an operator is the program's own, or it was imported.
var ErrNoGraph = failure.New(failure.Config, "the snapshot has no model graph, so that nothing can be computed with its parameters outside of their program; "+
	"train on with losses and operators of monolith, or write its rows alone, to parquet or arrow")

// Model is a trained model as of one snapshot. It is safe to share as long as nobody changes it.
type Model struct {
	// Kind is what the job calls its model, such as deepfm.
	Kind string
	// Graph is the forward graph, with the features that it reads, its heads, and the layout of the parameters: tables with segments, initial
	// values and compressors, and dense tensors.
	Graph *graph.Graph
	// Recipe is how features, labels and weight are made of a record: the JSON that the snapshot's manifest has; nil: nobody has said.
	Recipe json.RawMessage
	// Tables are those of the layout, in its order.
	Tables []Table
	// Dense are the weights of the layout's dense tensors, one after the other, as [model.Session].SetDense takes them.
	Dense []float32
	// From is where it comes from.
	From Origin

	in   fsx.FS
	info *snapshot.Info // nil: rows are elsewhere
	init [][]initial    // by table and segment
}

// Table is what a model has of an embedding table beside its layout.
type Table struct {
	Name string `json:"name"`
	// Rows is how many ids have a row.
	Rows int64 `json:"rows"`
}

// Origin is where a model comes from.
type Origin struct {
	// Job is the name of the job that trained it, and Plan the hash of its training graph.
	Job  string `json:"job,omitempty"`
	Plan string `json:"plan,omitempty"`
	// Snapshot is the number of the snapshot, Created when its cut was taken, and Digest names its contents where it is a whole one.
	Snapshot uint64    `json:"snapshot"`
	Created  time.Time `json:"created"`
	Digest   string    `json:"digest,omitempty"`
	// Kernels is the family of kernels that the job began with.
	Kernels string `json:"kernels,omitempty"`
	// Examples is how many it was trained on.
	Examples int64 `json:"examples"`
}

// kernelsKey is the key of worker state that has the family of kernels.
const kernelsKey = "kernels"

// initial is how a segment of a row begins.
type initial struct {
	init   param.Init
	name   uint64
	values optim.ValueType
	at, to int // in the row
}

// Open describes the model of a snapshot of this machine. Dense tensors are read and verified; rows are not touched. Errors: [ErrNoGraph];
// [snapshot.ErrCorrupt], [snapshot.ErrVersion], which name the file; the context's.
func Open(ctx context.Context, path string) (*Model, error) { return OpenIn(ctx, fsx.Local{}, path) }

// OpenIn is [Open] of a snapshot in another store, which must stay open as long as rows are read.
func OpenIn(ctx context.Context, in fsx.FS, path string) (_ *Model, err error) {
	s, err := snapshot.OpenWith(ctx, path, snapshot.OpenOptions{FS: in, WeightsOnly: true, DenseOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	info, err := snapshot.ReadInfoIn(in, path) // that of s has the files alone that are open
	if err != nil {
		return nil, err
	}
	if info.Model == nil {
		return nil, fmt.Errorf("export: %s: %w", path, ErrNoGraph)
	}
	m := &Model{Kind: info.Model.Name, Recipe: info.Recipe, in: in, info: info, From: Origin{
		Job: info.Meta["job"], Plan: info.Meta["plan"], Snapshot: info.ID, Created: info.Created, Digest: info.Digest, Kernels: string(info.State[kernelsKey]),
	}}
	for _, splits := range info.Positions {
		for _, p := range splits {
			m.From.Examples += p.Rows
		}
	}
	for _, t := range info.Tables {
		m.Tables = append(m.Tables, Table{Name: t.Name, Rows: t.Rows})
	}
	if err := m.build(info.Model.Graph); err != nil {
		return nil, fmt.Errorf("export: %s: its graph: %w: %w", path, err, snapshot.ErrCorrupt)
	}
	if is, want := m.Graph.Layout().Shape().Hash(), info.Shape().Hash(); is != want {
		return nil, fmt.Errorf("export: %s: its graph has parameters of the shape %s, its files have %s: %w", path, is, want, snapshot.ErrCorrupt)
	}
	tensors, err := s.Tensors()
	if err != nil {
		return nil, err
	}
	if err := m.setDense(tensors); err != nil {
		return nil, fmt.Errorf("export: %s: %w: %w", path, err, snapshot.ErrCorrupt)
	}
	return m, nil
}

// New describes a model whose parameters are elsewhere: of a written graph ([graph.Graph.Marshal]), which it verifies, and a recipe. Dense is nil, and there is nothing for Rows to read.
func New(kind string, written []byte, recipe json.RawMessage) (*Model, error) {
	g, err := graph.Unmarshal(written)
	if err != nil {
		return nil, fmt.Errorf("export: the graph of model %s: %w", kind, err)
	}
	m := &Model{Kind: kind, Recipe: recipe}
	for _, t := range g.Layout().Tables {
		m.Tables = append(m.Tables, Table{Name: t.Name})
	}
	return m, m.build(written)
}

// setDense puts tensors, which come in any order, where the layout has them.
func (m *Model) setDense(tensors []snapshot.Tensor) error {
	byName := map[string][]float32{}
	for _, t := range tensors {
		byName[t.Name] = t.Weights
	}
	l := m.Graph.Layout()
	m.Dense = make([]float32, 0, l.DenseLen())
	for _, t := range l.Dense {
		w := byName[t.Name]
		if len(w) != t.Len() {
			return fmt.Errorf("dense tensor %q has %d weights of %d", t.Name, len(w), t.Len())
		}
		m.Dense = append(m.Dense, w...)
	}
	return nil
}

// build reads the graph, and makes of its layout what initial values need.
func (m *Model) build(written []byte) error {
	g, err := graph.Unmarshal(written)
	if err != nil {
		return err
	}
	l := g.Layout()
	if len(l.Tables) != len(m.Tables) {
		return fmt.Errorf("it has %d tables, not %d", len(l.Tables), len(m.Tables))
	}
	m.Graph, m.init = g, make([][]initial, len(l.Tables))
	for i, t := range l.Tables {
		if t.Name != m.Tables[i].Name || m.Tables[i].Rows < 0 {
			return fmt.Errorf("its table %d is %q, not %q of %d rows", i, t.Name, m.Tables[i].Name, m.Tables[i].Rows)
		}
		at := 0
		for _, s := range t.Segments {
			m.init[i] = append(m.init[i], initial{s.Init, param.HashName(t.Name, s.Name), optim.ValuesOf(s.Optimizer), at, at + s.Dim})
			at += s.Dim
		}
	}
	return nil
}

// Initial writes what training would begin the row of an id with, as many numbers as a row of the table has: what a lookup gives for an id
// without a row. It is a function of the seed, the names of table and segments, and the id, and allocates nothing.
func (m *Model) Initial(tbl int, id int64, dst []float32) {
	seed := m.Graph.Layout().Seed
	for i := range m.init[tbl] {
		s := &m.init[tbl][i]
		s.init.Fill(dst[s.at:s.to], seed, s.name, uint64(id))
		s.values.Round(dst[s.at:s.to])
	}
}

// Compress makes of rows of a table, [n, dim] one after the other, what the model reads in place of them, where a segment has a compressor
// ([param.Compressor]); others it leaves alone. Who runs the [graph.Graph] must not: a session does it. Other programs must.
func (m *Model) Compress(tbl int, rows []float32) {
	t := &m.Graph.Layout().Tables[tbl]
	dim := t.Dim()
	for i, s := range m.init[tbl] {
		c := t.Segments[i].Compressor
		if c.Kind == "" {
			continue
		}
		for at := 0; at+dim <= len(rows); at += dim {
			w := rows[at+s.at : at+s.to]
			c.Read(w, w, false, 0)
		}
	}
}

// Rows calls each with the rows of a table, at most 64Ki at a time, in the order of [table.Hash]: ids, times, counts, and weights as training has
// them. They are valid during the call, and have no optimizer state. What one shard has written is verified before a row of it is used.
// Errors: [snapshot.ErrCorrupt], which names the file; the context's; what each returns; [errors.ErrUnsupported] of a model that was not
// opened from a snapshot.
func (m *Model) Rows(ctx context.Context, tbl int, each func(*table.Rows) error) error {
	if m.info == nil {
		return fmt.Errorf("export: the model was not read from a snapshot, which has its rows: %w", errors.ErrUnsupported)
	}
	for shard := range m.info.Shards { // which have ranges of hashes, in their order
		if !slices.ContainsFunc(m.info.Files, func(f snapshot.FileInfo) bool {
			return f.Kind == snapshot.KindRows && f.Table == tbl && f.Shard == shard && m.info.TotalRows(f) > 0
		}) {
			continue
		}
		if err := m.rowsOf(ctx, tbl, shard, each); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) rowsOf(ctx context.Context, tbl, shard int, each func(*table.Rows) error) (err error) {
	r, err := snapshot.OpenRows(ctx, m.info, tbl, shard, snapshot.RowsOptions{FS: m.in, WeightsOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.All(func(rows *table.Rows) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return each(rows)
	})
}

// Slots are the slots of the sparse features, by name, as far as a recipe has them; nil is no recipe.
func Slots(recipe json.RawMessage) map[string]int {
	var r struct {
		Features []struct {
			Name, Kind string
			Slot       *int
		}
	}
	_ = json.Unmarshal(recipe, &r) // who writes a snapshot alone stores none: slots have numbers too
	out := map[string]int{}
	for _, f := range r.Features {
		if f.Slot != nil && f.Kind != "dense" {
			out[f.Name] = *f.Slot
		}
	}
	return out
}

// written is a model as JSON, without its weights.
type written struct {
	Kind   string          `json:"kind"`
	From   Origin          `json:"from"`
	Tables []Table         `json:"tables"`
	Graph  json.RawMessage `json:"graph"`
	Recipe json.RawMessage `json:"recipe,omitempty"`
}

// MarshalJSON writes all but the weights.
func (m *Model) MarshalJSON() ([]byte, error) {
	g, err := m.Graph.Marshal()
	if err != nil {
		return nil, err
	}
	return json.Marshal(written{m.Kind, m.From, m.Tables, g, m.Recipe})
}

// UnmarshalJSON reads what MarshalJSON wrote; Dense is nil then. Errors: what cannot be a model.
func (m *Model) UnmarshalJSON(b []byte) error {
	var w written
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*m = Model{Kind: w.Kind, From: w.From, Tables: w.Tables, Recipe: w.Recipe}
	return m.build(w.Graph)
}
