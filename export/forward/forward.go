package forward

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
)

// ErrRefused means that a model cannot be computed outside of monolith. The message names the operator, head or table and says why.
var ErrRefused = failure.New(failure.Config, "the model cannot be exported as a computation; its rows can, to parquet, arrow or safetensors")

// Entries is a sparse feature of a batch.
type Entries struct {
	// IDs are the fids of the entries [entries], in the order of rows, and Row the row of each.
	IDs, Row Value
	// Numbers are the places of the rows of IDs in the table [entries], and the number of its rows for ids without one, as [Target].Numbers gives them; the zero value: the
	// target finds them.
	Numbers Value
	// Values weigh the entries [entries]; the zero value where the feature has no values.
	Values Value
}

// Inputs is a batch.
type Inputs struct {
	// NumRows is how many rows it has, without dimensions.
	NumRows Value
	// Sparse has one entry for each sparse feature, Dense one for each dense feature [rows, dim], in the order of the graph's.
	Sparse []Entries
	Dense  []Value
}

// Unpad makes entries of ids in a matrix [rows, n], in which negative ones are none: they fill rows that have fewer than n. It returns the places of the
// entries in the matrix too, which [Pick] takes.
func Unpad(t Target, ids Value) (e Entries, places Value) {
	flat := t.Reshape(ids, -1)
	places = t.Where(t.Op(Less, t.Ints(nil, -1), flat))
	return Entries{IDs: t.Gather(flat, places), Row: rowOf(t, places, ids)}, places
}

// rowOf is the row of each place in a matrix. A matrix without a column has no places, but readers divide by its width all the same.
func rowOf(t Target, places, matrix Value) Value {
	return t.Op(Div, places, t.Op(Max, t.Size(matrix, 1), t.Ints(nil, 1)))
}

// UnpadNumbers is [Unpad] of a matrix of places of rows in a table that has so many, for clients that look ids up themselves: -1 is none, and -2-id an id without a row.
func UnpadNumbers(t Target, numbers Value, rows int64) (e Entries, places Value) {
	flat := t.Reshape(numbers, -1)
	fills := t.Cast(t.Op(Equal, flat, t.Ints(nil, -1)), Int)
	places = t.Where(t.Op(Less, fills, t.Ints(nil, 1)))
	x := t.Gather(flat, places)
	return Entries{
		IDs: t.Op(Sub, t.Ints(nil, -2), x), // of those that have a row nobody asks
		Row: rowOf(t, places, numbers), Numbers: t.Op(Select, t.Op(Less, x, t.Ints(nil, 0)), t.Ints(nil, rows), x),
	}, places
}

// Pick takes elements of a matrix by their places, counted row by row.
func Pick(t Target, x, places Value) Value { return t.Gather(t.Reshape(x, -1), places) }

// settings are those of all operators; each has some of them.
type settings struct {
	Feature   string
	Segment   string
	Combiners []graph.Combiner
	N         int
	Weights   string
	Lengths   string
	Bias      string
	Vectors   string
	Moments   string
	Slope     string // of a prelu
	Function  graph.Function
	Factor    float32
	Offset    float32
	Rows      int // of a matrix
	K         int // of top gates
	Balance   float32
	Inner     int
	Logits    string
	L0        float32         // in training alone
	Prefix    string          `json:"name"` // of the tensors of a batch normalisation
	NoScale   bool            `json:"no_scale"`
	NoCenter  bool            `json:"no_center"`
	Training  json.RawMessage // of a batch normalisation
	Dim       int
	Epsilon   float32
	Each      bool // vector, of a linear operator
	Mean      bool // in place of sums
	Heads     int
	From, To  int
	Rate      float64 // of dropout, which predictions have none of
	Salt      uint64
	Space     []int // of a razor
	Back      bool  // of positions
	Tail      bool  // of a first
	Replace   bool  // of a gru
	Candidate graph.Function
	Distances int // of a pointwise attention
	// What only training has of a razor and of a grad norm.
	Cost                []float32
	Tasks               []string
	Begin               string
	Scale, Power, Alpha float32
	Relative            bool

	Temperature     float32 // of a batch softmax and of a razor
	High, Low       float64 // of gates, 0: as the operator has them by default
	StraightThrough bool    `json:"straight_through"` // in training alone
}

// node is an operator with its settings.
type node struct {
	graph.Operator
	settings
}

// lowering is a forward pass in the making.
type lowering struct {
	Target
	g        *graph.Graph
	layout   *param.Layout
	features []model.Feature
	in       Inputs
	nodes    map[int]*node
	values   map[int]Value
	rows     []Value // of the entries of each sparse feature
	// What several operators want is computed once.
	counted map[string]Value
	pools   map[pooling][2]Value
}

// pooling is a value over entries and its combiner.
type pooling struct {
	input int
	by    graph.Combiner
}

// refused are the operators that no format gets, with the reason.
func refused() map[string]string {
	const reason = "its value depends on the other rows of a batch, and a server puts requests together as they come"
	return map[string]string{
		"similarity": reason, "diagonal": reason, "batch_mean": reason, "broadcast": reason,
	}
}

// operators are those that are exported.
func operators() map[string]func(*lowering, *node) Value {
	return map[string]func(*lowering, *node) Value{
		"dense":        (*lowering).dense,
		"lookup":       (*lowering).lookup,
		"pool":         (*lowering).pool,
		"first":        (*lowering).first,
		"expand":       func(l *lowering, n *node) Value { return l.Gather(l.input(n, 0), l.entries(n).Row) },
		"softmax":      (*lowering).softmax,
		"top_gates":    (*lowering).topGates,
		"weighted_sum": (*lowering).weightedSum,
		"linear":       (*lowering).linear,
		"kernel_norm":  (*lowering).kernelNorm,
		"add_bias":     func(l *lowering, n *node) Value { return l.Op(Add, l.input(n, 0), l.tensor(n.Bias)) },
		"relu":         func(l *lowering, n *node) Value { return l.Op(Relu, l.input(n, 0)) },
		"activation":   (*lowering).activation,
		"sigmoid":      func(l *lowering, n *node) Value { return l.Op(Sigmoid, l.input(n, 0)) },
		"prelu":        (*lowering).prelu,
		"affine": func(l *lowering, n *node) Value {
			return l.Op(Add, l.Op(Mul, l.input(n, 0), l.scalar(n.Factor)), l.scalar(n.Offset))
		},
		"stop_gradient": func(l *lowering, n *node) Value { return l.input(n, 0) },
		"add":           (*lowering).add,
		"mul":           func(l *lowering, n *node) Value { return l.Op(Mul, l.input(n, 0), l.input(n, 1)) },
		"max":           (*lowering).max,
		"concat":        (*lowering).concat,
		"row_sum":       func(l *lowering, n *node) Value { return l.Sum(l.input(n, 0), 1) },
		"embed_numbers": (*lowering).embedNumbers,
		"fm":            (*lowering).fm,
		"fm_entries":    (*lowering).fmEntries,
		"batch_norm":    (*lowering).batchNorm,
		"standardise":   (*lowering).standardise,
		"dropout":       func(l *lowering, n *node) Value { return l.input(n, 0) },
		"batch_softmax": (*lowering).score,

		"layer_norm":          (*lowering).layerNorm,
		"columns":             func(l *lowering, n *node) Value { return l.Columns(l.input(n, 0), n.From, n.To) },
		"scale":               (*lowering).scale,
		"fold":                (*lowering).foldVectors,
		"vector_sums":         (*lowering).vectorSums,
		"unit":                (*lowering).unit,
		"transpose":           (*lowering).transpose,
		"last":                (*lowering).last,
		"gru":                 (*lowering).gru,
		"pointwise_attention": (*lowering).pointwiseAttention,
		"hard_concrete":       (*lowering).hardConcrete,
		"razor":               (*lowering).razor,
		"positions":           (*lowering).positions,
		"grad_norm":           func(l *lowering, n *node) Value { return l.input(n, 0) },
		"row_product":         (*lowering).rowProduct,
		"pair_products":       (*lowering).pairProducts,
		"pair_dots":           (*lowering).pairDots,
		"field_dots":          (*lowering).fieldDots,
		"bi_interaction":      (*lowering).biInteraction,
		"self_attention":      (*lowering).selfAttention,
		"cin":                 (*lowering).cin,
		"both":                (*lowering).both,
	}
}

// Check says what of a graph has no form outside of monolith: an operator, by its name and place, or a head. It computes nothing. Errors: [ErrRefused], all faults at once.
func Check(g *graph.Graph) error {
	var faults []error
	bad := func(text string, args ...any) {
		faults = append(faults, fmt.Errorf("export: "+text+": %w", append(args, ErrRefused)...))
	}
	known, why := operators(), refused()
	for _, o := range g.Operators() {
		switch _, ok := known[o.Name]; {
		case why[o.Name] != "":
			bad("operator %%%d, %s: %s", o.ID, o.Text, why[o.Name])
		case !ok:
			bad("operator %%%d, %s: no format has a form for it", o.ID, o.Text)
		case o.Shape.Kind == graph.PerPair || o.Shape.Kind == graph.PerBatch:
			bad("operator %%%d, %s: %s", o.ID, o.Text, why["similarity"])
		}
	}
	for _, t := range g.Layout().Tables {
		for _, s := range t.Segments {
			if s.Init.Kind > param.InitGlorot {
				bad("table %q segment %q: no format has a form for the initial values %s", t.Name, s.Name, s.Init)
			}
		}
	}
	for _, h := range g.Heads() {
		if h.Own != nil {
			bad("head %q: its loss %s is the program's own, and what makes a prediction of an output with it", h.Name, h.Loss)
		}
	}
	return errors.Join(faults...)
}

// Operators are the names of the operators that are exported and of those that are not, sorted.
func Operators() (exported, not []string) {
	for name := range operators() {
		exported = append(exported, name)
	}
	for name := range refused() {
		not = append(not, name)
	}
	slices.Sort(exported)
	slices.Sort(not)
	return exported, not
}

// Write writes the forward pass of a graph that [Check] has let pass, and returns the predictions of its heads [rows, width], each in the head's own unit. rows
// is how many rows each table has.
func Write(t Target, g *graph.Graph, rows []int64, in Inputs) []Value {
	l := &lowering{
		Target: t, g: g, layout: g.Layout(), features: g.Features(), in: in, nodes: map[int]*node{}, values: map[int]Value{},
		counted: map[string]Value{}, pools: map[pooling][2]Value{},
	}
	l.readRows(rows)
	lower := operators()
	for _, o := range g.Operators() {
		n := &node{Operator: o}
		if err := json.Unmarshal(o.Settings, &n.settings); err != nil {
			panic(fmt.Sprintf("export: settings of %s: %v", o.Text, err)) // package graph wrote them
		}
		l.nodes[o.ID] = n
		t.Scope(fmt.Sprintf("%d_%s", o.ID, o.Name))
		l.values[o.ID] = lower[o.Name](l, n)
	}
	var out []Value
	heads := g.Heads()
	for i, id := range g.Outputs() {
		t.Scope("head_" + heads[i].Name)
		found, err := heads[i].FindLoss()
		if err != nil {
			panic("export: " + err.Error()) // a graph has none
		}
		v := l.values[id]
		switch found.Link {
		case loss.Sigmoid:
			v = t.Op(Sigmoid, v)
		case loss.Exp:
			v = t.Op(Exp, v)
		case loss.Softmax:
			v = l.softmaxOfRows(v, heads[i].Width)
		case loss.Identity:
		}
		out = append(out, v)
	}
	return out
}

// Identifier makes of a name what every format takes for one: letters, digits, and . _ - /.
func Identifier(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '/':
			return r
		}
		return '_'
	}, name)
}

func (l *lowering) input(n *node, i int) Value { return l.values[n.Inputs[i]] }

// tensor is a dense tensor by its name.
func (l *lowering) tensor(name string) Value { return l.Dense(l.tensorPlace(name)) }

// shapeOf is that of a dense tensor.
func (l *lowering) shapeOf(name string) []int { return l.layout.Dense[l.tensorPlace(name)].Shape }

func (l *lowering) tensorPlace(name string) int {
	return slices.IndexFunc(l.layout.Dense, func(t param.Tensor) bool { return t.Name == name })
}

// place is that of a feature among those of its kind.
func (l *lowering) place(name string) int {
	at := map[model.Kind]int{}
	for _, f := range l.features {
		if f.Name == name {
			return at[f.Kind]
		}
		at[f.Kind]++
	}
	panic(fmt.Sprintf("export: no feature %q", name)) // a graph has none
}

// entries are those that a value of the kind PerEntry is of.
func (l *lowering) entries(n *node) Entries { return l.in.Sparse[l.place(n.Shape.Feature)] }

// scalar is a constant that meets every shape.
func (l *lowering) scalar(v float32) Value { return l.Floats(nil, v) }
