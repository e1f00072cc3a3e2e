package savedmodel

import (
	"cmp"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
)

// The methods that a server offers for a signature (tensorflow/cc/saved_model/signature_constants.h).
const (
	methodPredict  = "tensorflow/serving/predict"
	methodClassify = "tensorflow/serving/classify"
	methodRegress  = "tensorflow/serving/regress"
)

// The names of signatures. Those of a head are these with / and its name behind.
const (
	// SignatureExamples takes serialized tf.Examples.
	SignatureExamples = "serving_default"
	// SignatureFeatures takes features as matrices.
	SignatureFeatures = "features"
	// SignatureClassify and SignatureRegress are what servers offer under these names, of serialized tf.Examples.
	SignatureClassify = "classify"
	SignatureRegress  = "regress"
)

// tensor is an input or output of a signature.
type tensor struct {
	key, name string
	dtype     int64
	shape     []int64
}

// signature is a SignatureDef.
type signature struct {
	name, method    string
	inputs, outputs []tensor
}

func (s *signature) message() protofield.Message {
	var m protofield.Message
	for field, list := range [][]tensor{s.inputs, s.outputs} {
		for _, t := range list {
			var info protofield.Message
			info.Text(1, t.name)
			if t.dtype != 0 {
				info.Int(2, t.dtype)
				info.Bytes(3, shapeOf(t.shape))
			}
			m.Entry(protowire.Number(1+field), t.key, info)
		}
	}
	if s.method != "" {
		m.Text(3, s.method)
	}
	return m
}

// signatures adds the forward pass to the program, once for each way in, and returns what there is to call.
func (p *program) signatures(g *graph.Graph, rows []int64) []signature {
	heads := g.Heads()
	p.prefix = "features/"
	inputs, in := p.placeholders(g.Features())
	features := signature{name: SignatureFeatures, method: methodPredict, inputs: inputs, outputs: p.predictions(heads, forward.Write(p, g, rows, in))}

	p.prefix = "examples/"
	in, from := p.parse(g.Features())
	predicted := forward.Write(p, g, rows, in)
	examples := signature{name: SignatureExamples, method: methodPredict, inputs: []tensor{from}, outputs: p.predictions(heads, predicted)}
	out := []signature{examples, features}
	from.key = "inputs"
	for i, h := range heads {
		value := predicted[i]
		p.Scope("head_" + h.Name)
		if h.Width == 1 {
			out = append(out, signature{SignatureRegress + "/" + h.Name, methodRegress, []tensor{from}, []tensor{of("outputs", value.Name, dtFloat, -1, 1)}})
		}
		labels := h.ClassLabels()
		if labels == nil {
			continue
		}
		scores, n := value, int64(len(labels))
		if h.Width == 1 {
			scores = p.Concat(1, p.Op(forward.Sub, p.Floats(nil, 1), value), value)
		}
		names := p.constant(dtString, []int64{1, n}, nil, labels...)
		classes := p.apply("Tile", []string{names, p.pack(in.NumRows, p.Ints(nil, 1))}, typed("T", dtString), typed("Tmultiples", dtInt64))
		out = append(out, signature{
			SignatureClassify + "/" + h.Name, methodClassify, []tensor{from}, []tensor{of("classes", classes, dtString, -1, n), of("scores", scores.Name, dtFloat, -1, n)},
		})
	}
	return out
}

func of(key, node string, dtype int64, shape ...int64) tensor {
	return tensor{key, node + ":0", dtype, shape}
}

// predictions are the outputs of a signature.
func (p *program) predictions(heads []model.Head, values []forward.Value) []tensor {
	var out []tensor
	for i, h := range heads {
		out = append(out, of(h.Name, values[i].Name, dtFloat, -1, int64(h.Width)))
	}
	return out
}

// placeholders are the features as matrices: ids [rows, n], filled up with negative numbers, their values [rows, n], and numbers [rows, dim].
func (p *program) placeholders(features []model.Feature) (inputs []tensor, in forward.Inputs) {
	p.Scope("inputs")
	var first forward.Value
	placeholder := func(key string, t forward.Type, shape ...int64) forward.Value {
		name := p.add(p.prefix+key, "Placeholder", nil, typed("dtype", dtypes[t]), shaped("shape", shape))
		inputs = append(inputs, of(key, name, dtypes[t], shape...))
		v := forward.Value{Name: name, Type: t}
		first = cmp.Or(first, v)
		return v
	}
	values := map[string]forward.Value{} // features may share them
	for _, f := range features {
		if f.Kind == model.Dense {
			in.Dense = append(in.Dense, placeholder(f.Name, forward.Float, -1, int64(f.Dim)))
			continue
		}
		ids := placeholder(f.Name, forward.Int, -1, -1)
		e, places := forward.Unpad(p, ids)
		if f.Values != "" {
			if _, ok := values[f.Values]; !ok {
				values[f.Values] = placeholder(f.Values, forward.Float, -1, -1)
			}
			e.Values = forward.Pick(p, values[f.Values], places)
		}
		in.Sparse = append(in.Sparse, e)
	}
	in.NumRows = p.Size(first, 0)
	return inputs, in
}

// parse takes serialized tf.Examples apart: ids are int64 lists, their values float lists as long, numbers float lists of a feature's width. Ids that are missing are none; numbers are
// 0, or missing where the model standardises.
func (p *program) parse(features []model.Feature) (in forward.Inputs, from tensor) {
	p.Scope("parse")
	examples := p.add(p.prefix+"examples", "Placeholder", nil, typed("dtype", dtString), shaped("shape", []int64{-1}))
	var sparse, dense []string
	var sparseTypes, denseTypes []int64
	var denseShapes [][]int64
	var defaults []string
	place := map[string]int{}
	for _, f := range features {
		if f.Kind == model.Dense {
			fill := make([]float32, f.Dim)
			for i := range fill {
				if f.Decay != 0 {
					fill[i] = float32(math.NaN())
				}
			}
			dense, denseTypes, denseShapes = append(dense, f.Name), append(denseTypes, dtFloat), append(denseShapes, []int64{int64(f.Dim)})
			defaults = append(defaults, p.Floats([]int64{int64(f.Dim)}, fill...).Name)
			continue
		}
		place[f.Name] = len(sparse)
		sparse, sparseTypes = append(sparse, f.Name), append(sparseTypes, dtInt64)
		if _, ok := place[f.Values]; f.Values != "" && !ok {
			place[f.Values] = len(sparse)
			sparse, sparseTypes = append(sparse, f.Values), append(sparseTypes, dtFloat)
		}
	}
	keys := func(names []string) string { return p.constant(dtString, []int64{int64(len(names))}, nil, names...) }
	parsed := p.apply("ParseExampleV2", append([]string{examples, keys(nil), keys(sparse), keys(dense), keys(nil)}, defaults...),
		counted("num_sparse", int64(len(sparse))), types("sparse_types", sparseTypes), types("Tdense", denseTypes), shapes("dense_shapes", denseShapes),
		types("ragged_value_types", nil), types("ragged_split_types", nil))
	n := len(sparse)
	for i, f := range features {
		if f.Kind == model.Dense {
			continue
		}
		at := place[f.Name]
		indices := forward.Value{Name: output(parsed, at), Type: forward.Int}
		e := forward.Entries{IDs: forward.Value{Name: output(parsed, n+at), Type: forward.Int}, Row: p.Reshape(p.Columns(indices, 0, 1), -1)}
		if f.Values != "" {
			e.Values = forward.Value{Name: output(parsed, n+place[features[i].Values]), Type: forward.Float}
		}
		in.Sparse = append(in.Sparse, e)
	}
	for i := range dense {
		in.Dense = append(in.Dense, forward.Value{Name: output(parsed, 3*n+i), Type: forward.Float})
	}
	// The rank of strings has no place among the types of a forward pass.
	dims := p.apply("Shape", []string{examples}, typed("T", dtString), typed("out_type", dtInt64))
	in.NumRows = p.gather(forward.Value{Name: dims, Type: forward.Int}, p.number(0))
	return in, of("examples", examples, dtString, -1)
}
