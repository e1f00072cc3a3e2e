// Package savedmodel writes models as TensorFlow's SavedModels, without TensorFlow: stock TensorFlow loads them and TensorFlow Serving serves them, with no operator of our own.
//
//	saved_model.pb               the graph and its signatures, a few hundred kilobytes
//	variables/variables.*        dense tensors, and of each table its ids [n] and rows [n+1, dim]
//	assets.extra/monolith.json   what the model is: features, recipe, heads, graph, snapshot
//	assets.extra/tf_serving_warmup_requests   what a server answers before it serves the model
//
// It is a SavedModel of TensorFlow 1's form, which both load: a graph with a saver, an operator that fills the hash tables (HashTableV2) from ids to places of rows when the
// variables have been restored, and signatures:
//
//	serving_default     examples: serialized tf.Example [rows]; predictions of all heads [rows, width], by their names
//	features            each feature by its name, ids int64 [rows, n] filled up with negative numbers; the same predictions
//	classify/HEAD       inputs: serialized tf.Example; classes "0" and "1" and scores, of a head with probabilities
//	regress/HEAD        inputs: serialized tf.Example; outputs, of a head of one number
//
// What a feature has in either form is what training has of it after the parse recipe: fids, and numbers as they are behind their clipping, logarithm and scaling.
//
// All parameters lie in variables, so that saved_model.pb stays far below the 2 GB that a protobuf may have. A server holds them in memory: [MaxBytes] bounds that.
package savedmodel

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfbundle"
	"github.com/monolith-go/monolith/ps/table"
)

// MaxBytes is what a server may need for a model at most, as [Bytes] counts it: 64 GiB.
const MaxBytes = 64 << 30

// hashed is what TensorFlow's hash table needs for an id: the id, its place, and the space that is left free between.
const hashed = 40

// ErrTooLarge means that a server would need more memory for a model than MaxBytes.
var ErrTooLarge = failure.New(failure.TooLarge, "the model is too large for a SavedModel, all of which one process holds; drop rows by the job's retention, or serve the native form")

// Format is the format. The zero value is ready.
type Format struct{}

var _ export.Format = Format{}

// Name implements [export.Format].
func (Format) Name() string { return "savedmodel" }

// Bytes is what a server needs for a model: weights, and 48 bytes for each id in the variable and in the hash table.
func Bytes(m *export.Model) int64 {
	n := 4 * int64(len(m.Dense))
	for i, t := range m.Graph.Layout().Tables {
		n += (m.Tables[i].Rows + 1) * int64(8+hashed+4*t.Dim())
	}
	return n
}

// Check implements [export.Format]. Errors: [forward.ErrRefused]; [ErrTooLarge].
func (Format) Check(m *export.Model) error {
	err := forward.Check(m.Graph)
	if n := Bytes(m); n > MaxBytes {
		err = errors.Join(err, fmt.Errorf("savedmodel: a server needs %d GiB for the model, %d are the most: %w", n>>30, MaxBytes>>30, ErrTooLarge))
	}
	return err
}

// Write implements [export.Format]. Rows are written as they are read; saved_model.pb is last.
func (Format) Write(ctx context.Context, m *export.Model, to export.Target) error {
	p := newProgram(m)
	if err := p.writeVariables(ctx, m, to); err != nil {
		return err
	}
	about, err := m.MarshalJSON()
	if err != nil {
		return fmt.Errorf("savedmodel: %w", err)
	}
	warmup, err := m.Warmup(p.some)
	if err != nil {
		return fmt.Errorf("savedmodel: %w", err)
	}
	for _, f := range []struct {
		name string
		b    []byte
	}{{"assets.extra/monolith.json", about}, {export.WarmupName, warmup}, {"saved_model.pb", p.message(m)}} {
		if err := fsx.WriteFile(ctx, to.FS, filepath.Join(to.Dir, filepath.FromSlash(f.name)), f.b); err != nil {
			return fmt.Errorf("savedmodel: %w", err)
		}
	}
	return nil
}

func newProgram(m *export.Model) *program {
	p := &program{taken: map[string]int{}, consts: map[string]string{}, layout: m.Graph.Layout()}
	p.declare(m)
	p.saver()
	return p
}

// The files of the variables: dense tensors and ids in one, rows in the other, so that both are written as rows are read.
const (
	fileIDs = iota
	fileRows
	files
)

// writeVariables writes the files that the saver restores.
func (p *program) writeVariables(ctx context.Context, m *export.Model, to export.Target) (err error) {
	w, err := tfbundle.Create(ctx, to.FS, filepath.Join(to.Dir, "variables", "variables"), files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	p.some = make([][]int64, len(p.tables))
	at := 0
	for i, t := range p.layout.Dense {
		v := p.dense[i]
		if err := w.Begin(fileIDs, v.name, tfbundle.Float32, v.shape...).Floats(m.Dense[at : at+t.Len()]...); err != nil {
			return err
		}
		at += t.Len()
	}
	for i := range p.tables {
		t := &p.tables[i]
		ids := w.Begin(fileIDs, t.ids.name, tfbundle.Int64, t.ids.shape...)
		rows := w.Begin(fileRows, t.rows.name, tfbundle.Float32, t.rows.shape...)
		err := m.Rows(ctx, i, func(r *table.Rows) error {
			to.Wrote(len(r.Keys))
			p.some[i] = append(p.some[i], r.Keys[:min(len(r.Keys), export.WarmupIDs-len(p.some[i]))]...)
			return errors.Join(ids.Ints(r.Keys...), rows.Floats(r.Weights...))
		})
		if err == nil {
			err = rows.Floats(forward.Spare(&p.layout.Tables[i])...)
		}
		if err != nil {
			return err
		}
	}
	return w.Commit(ctx)
}

// graphVersion is the version of GraphDefs that the graph follows, TensorFlow 2.8's; later ones read it.
const graphVersion = 987

// message is the SavedModel, with one MetaGraphDef for serving.
func (p *program) message(m *export.Model) []byte {
	counts := make([]int64, len(m.Tables))
	for i, t := range m.Tables {
		counts[i] = t.Rows
	}
	signatures := p.signatures(m.Graph, counts)
	var info, graph, versions, meta, saved protofield.Message
	info.Text(4, "serve")
	info.Text(5, "2.8.0")
	for _, n := range p.nodes {
		graph.Bytes(1, n.message())
	}
	versions.Int(1, graphVersion)
	graph.Bytes(4, versions)
	meta.Bytes(1, info)
	meta.Bytes(2, graph)
	meta.Bytes(3, saverDef())
	meta.Entry(4, "variables", p.collection())
	for _, s := range signatures {
		meta.Entry(5, s.name, s.message())
	}
	start := signature{outputs: []tensor{{key: initKey, name: initOp}}}
	meta.Entry(5, initKey, start.message())
	saved.Int(1, 1)
	saved.Bytes(2, meta)
	return saved
}

// initKey is the signature that names the operator which a loader runs behind restoring variables.
const initKey = "__saved_model_init_op"

func (n *node) message() protofield.Message {
	var m protofield.Message
	m.Text(1, n.name)
	m.Text(2, n.op)
	for _, in := range n.inputs {
		m.Text(3, in)
	}
	for _, a := range n.attrs {
		m.Entry(5, a.name, a.value)
	}
	return m
}
