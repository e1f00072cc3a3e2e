package zoo_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// equation computes models by their papers' equations, a row at a time, in float64. The features are two sparse ones
// with one fid in each row and a dense one of two numbers.
type equation struct {
	layout *param.Layout
	dense  []float32
	in     *model.Inputs
	row    int
	// predictions are a session's.
	predictions [][]float32
}

// tensor returns a dense parameter by its name.
func (e *equation) tensor(name string) []float32 {
	i := slices.IndexFunc(e.layout.Dense, func(p param.Tensor) bool { return p.Name == name })
	return e.dense[e.layout.DenseOffset(i):][:e.layout.Dense[i].Len()]
}

// segment returns a segment of the embedding row of the row's fid of a sparse feature.
func (e *equation) segment(feature int, name string) []float32 {
	t := e.layout.Tables[0]
	values := e.in.Values[0][int(e.in.Sparse[feature].Index[e.row])*t.Dim():]
	for _, s := range t.Segments {
		if s.Name == name {
			return values[:s.Dim]
		}
		values = values[s.Dim:]
	}
	return nil
}

func (e *equation) number(i int) float64 { return float64(e.in.Dense[0][2*e.row+i]) }

// linear is w₀ + Σ wᵢxᵢ.
func (e *equation) linear() float64 {
	sum := float64(e.tensor("linear.bias")[0])
	for f := range 2 {
		sum += float64(e.segment(f, "bias")[0]) + float64(e.tensor("linear.weight")[f])*e.number(f)
	}
	return sum
}

// sparse are the vectors of the sparse features.
func (e *equation) sparse() (vectors [][]float64) {
	for f := range 2 {
		var v []float64
		for _, w := range e.segment(f, "vec") {
			v = append(v, float64(w))
		}
		vectors = append(vectors, v)
	}
	return vectors
}

// fields are the vectors vᵢxᵢ.
func (e *equation) fields() [][]float64 {
	fields := e.sparse()
	dim := len(fields[0])
	for i := range 2 {
		var v []float64
		for _, w := range e.tensor("dense.vectors")[i*dim:][:dim] {
			v = append(v, float64(w)*e.number(i))
		}
		fields = append(fields, v)
	}
	return fields
}

func pairs(fields [][]float64) (sum float64) {
	for i := range fields {
		for j := range i {
			for k := range fields[i] {
				sum += fields[i][k] * fields[j][k]
			}
		}
	}
	return sum
}

// layer is x·W + b.
func (e *equation) layer(name string, x []float64) []float64 {
	w, b := e.tensor(name+".weight"), e.tensor(name+".bias")
	y := make([]float64, len(b))
	for j := range y {
		y[j] = float64(b[j])
		for i, v := range x {
			y[j] += v * float64(w[i*len(b)+j])
		}
	}
	return y
}

// mlp is a perceptron of two layers.
func (e *equation) mlp(name string, x []float64) []float64 {
	for _, name := range []string{name + ".0", name + ".1"} {
		x = relu(e.layer(name, x))
	}
	return x
}

func (e *equation) deep(x []float64) []float64 { return e.mlp("deep", x) }

// times is x·W.
func (e *equation) times(name string, x []float64) []float64 {
	w := e.tensor(name + ".weight")
	y := make([]float64, len(w)/len(x))
	for i, v := range x {
		for j := range y {
			y[j] += v * float64(w[i*len(y)+j])
		}
	}
	return y
}

func relu(x []float64) []float64 {
	y := slices.Clone(x)
	for i := range y {
		y[i] = max(y[i], 0)
	}
	return y
}

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

func product(x, y []float64) []float64 {
	z := slices.Clone(x)
	for i := range z {
		z[i] *= y[i]
	}
	return z
}

func sum(x, y []float64) []float64 {
	z := slices.Clone(x)
	for i := range z {
		z[i] += y[i]
	}
	return z
}

func times(a float64, x []float64) []float64 {
	z := slices.Clone(x)
	for i := range z {
		z[i] *= a
	}
	return z
}

func softmax(x []float64) []float64 {
	total := 0.0
	for _, v := range x {
		total += math.Exp(v)
	}
	y := slices.Clone(x)
	for i, v := range x {
		y[i] = math.Exp(v) / total
	}
	return y
}

// products are those of all pairs of vectors of x and of y.
func products(x, y [][]float64) (pairs [][]float64) {
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			pairs = append(pairs, product(x[i], y[j]))
		}
	}
	return pairs
}

func (e *equation) cross(x0 []float64) []float64 {
	x := x0
	for _, name := range []string{"cross.0", "cross.1", "cross.2"} {
		x = sum(product(x0, e.layer(name, x)), x)
	}
	return x
}

func (e *equation) crossVector(x0 []float64) []float64 {
	x := x0
	for _, name := range []string{"cross.0", "cross.1", "cross.2"} {
		bias := make([]float64, len(x))
		for i, v := range e.tensor(name + ".bias") {
			bias[i] = float64(v)
		}
		x = sum(sum(times(e.times(name, x)[0], x0), bias), x)
	}
	return x
}

func (e *equation) attended() []float64 {
	pairs := products(e.fields(), e.fields())
	scores := make([]float64, len(pairs))
	for i, p := range pairs {
		scores[i] = e.times("attention.1", relu(e.layer("attention.0", p)))[0]
	}
	pooled := make([]float64, len(pairs[0]))
	for i, share := range softmax(scores) {
		pooled = sum(pooled, times(share, pairs[i]))
	}
	return pooled
}

func (e *equation) cin() []float64 {
	x0 := e.fields()
	before, maps := x0, []float64(nil)
	for layer := range 2 {
		w := e.tensor(fmt.Sprintf("cin.%d.weight", layer))
		next := make([][]float64, len(w)/(len(before)*len(x0)))
		for h := range next {
			next[h] = make([]float64, len(x0[0]))
			for i := range before {
				for j := range x0 {
					next[h] = sum(next[h], times(float64(w[(i*len(x0)+j)*len(next)+h]), product(before[i], x0[j])))
				}
			}
			total := 0.0
			for _, v := range next[h] {
				total += v
			}
			maps = append(maps, total)
		}
		before = next
	}
	return maps
}

func (e *equation) selfAttention(heads int) []float64 {
	x := e.fields()
	for layer := range 2 {
		part := func(of string) (out [][]float64) {
			for _, v := range x {
				out = append(out, e.times(fmt.Sprintf("attention.%d.%s", layer, of), v))
			}
			return out
		}
		q, k, v := part("query"), part("key"), part("value")
		width := len(q[0]) / heads
		y := part("residual")
		for i := range y {
			for h := range heads {
				scores := make([]float64, len(x))
				for j := range x {
					scores[j] = dot(q[i][h*width:][:width], k[j][h*width:])
				}
				for j, share := range softmax(scores) {
					for at := h * width; at < (h+1)*width; at++ {
						y[i][at] += share * v[j][at]
					}
				}
			}
			y[i] = relu(y[i])
		}
		x = y
	}
	return slices.Concat(x...)
}

func (e *equation) bilinear() []float64 {
	x := e.fields()
	means := make([]float64, len(x))
	for i, v := range x {
		for _, n := range v {
			means[i] += n / float64(len(v))
		}
	}
	var weighed [][]float64
	for i, a := range relu(e.times("senet.1", relu(e.times("senet.0", means)))) {
		weighed = append(weighed, times(a, x[i]))
	}
	var out []float64
	for name, x := range map[string][][]float64{"plain": x, "weighed": weighed} {
		var left [][]float64
		for _, v := range x {
			left = append(left, e.times("bilinear."+name, v))
		}
		pairs := slices.Concat(products(left, x)...)
		if name == "plain" {
			out = append(pairs, out...)
		} else {
			out = append(out, pairs...)
		}
	}
	return out
}

func (e *equation) dlrm() []float64 {
	bottom := e.mlp("bottom", []float64{e.number(0), e.number(1)})
	x, out := append([][]float64{bottom}, e.sparse()...), bottom
	for i := range x {
		for j := i + 1; j < len(x); j++ {
			out = append(out, dot(x[i], x[j]))
		}
	}
	return out
}

// norm normalises x; gamma and beta of its numbers begin at a place.
func (e *equation) norm(name string, x []float64, at int) []float64 {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	y := slices.Clone(x)
	for i, v := range x {
		y[i] = float64(e.tensor(name + ".gamma")[at+i])*(v-mean)/math.Sqrt(variance+1e-5) + float64(e.tensor(name + ".beta")[at+i])
	}
	return y
}

func (e *equation) masked() (out []float64) {
	var normal []float64
	for i, v := range e.fields() {
		normal = append(normal, e.norm("norm", v, i*len(v))...)
	}
	all := slices.Concat(e.fields()...)
	for _, block := range []string{"block.0", "block.1"} {
		mask := e.layer(block+".mask.1", relu(e.layer(block+".mask.0", all)))
		out = append(out, relu(e.norm(block+".norm", e.times(block, product(normal, mask)), 0))...)
	}
	return out
}

func (e *equation) fusion() float64 {
	all := slices.Concat(e.fields()...)
	x, y := e.deep(all), relu(e.layer("second.0", all))
	z := e.layer("fusion.x", x)[0] + e.times("fusion.y", y)[0]
	for h, name := range []string{"fusion.0", "fusion.1"} {
		n, m := len(x)/2, len(y)/2
		z += dot(e.times(name, x[h*n:][:n]), y[h*m:][:m])
	}
	return z
}

func TestModelsComputeTheirEquations(t *testing.T) {
	t.Parallel()
	logits := map[string]func(e *equation) float64{
		zoo.LR: (*equation).linear,
		zoo.FM: func(e *equation) float64 { return e.linear() + pairs(e.fields()) },
		zoo.FwFM: func(e *equation) float64 {
			z := e.linear()
			for i, p := range products(e.fields(), e.fields()) {
				for _, v := range p {
					z += float64(e.tensor("pairs.weight")[i]) * v
				}
			}
			return z
		},
		zoo.FFM: func(e *equation) float64 {
			z, all := e.linear(), e.fields()
			// What field i has for field j: three vectors of three numbers, in the order of the other fields.
			has := func(i, j int) []float64 {
				if j > i {
					j--
				}
				return all[i][j*3:][:3]
			}
			for i := range all {
				for j := range i {
					z += dot(has(i, j), has(j, i))
				}
			}
			return z
		},
		zoo.WideDeep: func(e *equation) float64 {
			return e.linear() + e.layer("deep.out", e.deep(slices.Concat(e.fields()...)))[0]
		},
		zoo.DeepFM: func(e *equation) float64 {
			fields := e.fields()
			return e.linear() + pairs(fields) + e.layer("deep.out", e.deep(slices.Concat(fields...)))[0]
		},
		zoo.NFM: func(e *equation) float64 {
			pooled := make([]float64, len(e.fields()[0]))
			for _, p := range products(e.fields(), e.fields()) {
				pooled = sum(pooled, p)
			}
			return e.linear() + e.layer("deep.out", e.deep(pooled))[0]
		},
		zoo.AFM: func(e *equation) float64 { return e.linear() + e.layer("out", e.attended())[0] },
		zoo.DCN: func(e *equation) float64 {
			x := slices.Concat(e.fields()...)
			return e.layer("out", append(e.crossVector(x), e.deep(x)...))[0]
		},
		zoo.DCNv2: func(e *equation) float64 {
			x := slices.Concat(e.fields()...)
			return e.layer("out", append(e.cross(x), e.deep(x)...))[0]
		},
		zoo.XDeepFM: func(e *equation) float64 {
			return e.linear() + e.layer("cin.out", e.cin())[0] + e.layer("deep.out", e.deep(slices.Concat(e.fields()...)))[0]
		},
		zoo.AutoInt: func(e *equation) float64 {
			return e.layer("out", append(e.selfAttention(2), e.deep(slices.Concat(e.fields()...))...))[0]
		},
		zoo.FiBiNET:  func(e *equation) float64 { return e.linear() + e.layer("deep.out", e.deep(e.bilinear()))[0] },
		zoo.DLRM:     func(e *equation) float64 { return e.layer("out", e.deep(e.dlrm()))[0] },
		zoo.MaskNet:  func(e *equation) float64 { return e.layer("out", e.deep(e.masked()))[0] },
		zoo.FinalMLP: (*equation).fusion,
		zoo.DSSM: func(e *equation) float64 {
			user, item := e.layer("user.out", e.mlp("user", append(e.sparse()[0], e.sparse()[1]...))), e.layer("item.out", e.mlp("item", []float64{e.number(0), e.number(1)}))
			cosine := dot(user, item) / math.Sqrt((dot(user, user)+1e-6)*(dot(item, item)+1e-6))
			return e.layer("out", []float64{cosine})[0]
		},
		zoo.Wukong:    func(e *equation) float64 { return e.layer("deep.out", e.deep(slices.Concat(e.wukong()...)))[0] },
		zoo.PEPNet:    (*equation).personalised,
		zoo.RankMixer: (*equation).mixedTokens,
		zoo.SNR:       func(e *equation) float64 { return e.routed("label")[0] },
		zoo.DIEN:      func(e *equation) float64 { return e.din(e.inputs()) },
		zoo.DBMTL:     func(e *equation) float64 { return e.related("label")[0] },
		zoo.DIN:       func(e *equation) float64 { return e.din(e.inputs()) },
		zoo.HSTU:      func(e *equation) float64 { return e.layer("head.label", e.deep(e.inputs()))[0] },
		zoo.SharedBottom: func(e *equation) float64 {
			return e.layer("head.label", e.deep(e.inputs()))[0]
		},
		zoo.ESMM: func(e *equation) float64 { return e.layer("head.label", e.mlp("deep.label", e.inputs()))[0] },
		zoo.MMoE: func(e *equation) float64 { return e.heads("mmoe", "label")[0] },
		zoo.PLE:  func(e *equation) float64 { return e.heads("ple", "label")[0] },
	}
	if names := slices.Sorted(maps.Keys(logits)); len(names) != len(zoo.Names()) {
		t.Errorf("equations of %q, models %q", names, zoo.Names())
	}
	for name, logit := range logits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEquation(t, name)
			for r, got := range e.predictions[0] {
				e.row = r
				if want := 1 / (1 + math.Exp(-logit(e))); math.Abs(float64(got)-want) > 1e-5 {
					t.Errorf("row %d: got %v, want %v", r, got, want)
				}
			}
		})
	}
}

// newEquation has a batch with what a session predicts of it.
func newEquation(t *testing.T, name string, heads ...model.Head) *equation {
	t.Helper()
	m := mustNew(t, small(zoo.Config{
		Name: name, Features: []zoo.Feature{{Name: "a"}, {Name: "b"}, {Name: "x", Kind: model.Dense, Dim: 2}},
		Dim: 3, Hidden: []int{6, 4}, Heads: heads,
	}))
	return equationOf(m, graphtest.Shape{Rows: 20})
}

func equationOf(m *zoo.Model, shape graphtest.Shape) *equation {
	e := &equation{layout: m.Layout(), dense: graphtest.Dense(m.Graph, 5), in: graphtest.Inputs(m, shape, 6)}
	s := m.NewSession(1)
	s.SetDense(e.dense)
	e.predictions = s.Predict(e.in)
	return e
}

// inputs are the vectors of the sparse features and the numbers.
func (e *equation) inputs() []float64 {
	return append(slices.Concat(e.sparse()...), e.number(0), e.number(1))
}

// mixture adds up what experts say.
func (e *equation) mixture(gate string, x []float64, experts [][]float64) []float64 {
	y := make([]float64, len(experts[0]))
	for i, share := range softmax(e.times(gate, x)) {
		y = sum(y, times(share, experts[i]))
	}
	return y
}

// heads are the outputs of the heads of mmoe and ple, with two experts that all share and, of ple, one of each head in two levels.
func (e *equation) heads(name string, heads ...string) (out []float64) {
	common := func(prefix string, x []float64) [][]float64 {
		return [][]float64{e.mlp(prefix+".0", x), e.mlp(prefix+".1", x)}
	}
	for _, head := range heads {
		x := e.inputs()
		if name == "mmoe" {
			x = e.mixture("experts."+head+".gate", x, common("experts", x))
		} else {
			all := common("experts.0", x)
			own := e.mixture("experts.0."+head+".gate", x, append([][]float64{e.mlp("experts.0."+head+".0", x)}, all...))
			for _, other := range heads {
				all = append(all, e.mlp("experts.0."+other+".0", x))
			}
			shared := e.mixture("experts.0.gate", x, all)
			x = e.mixture("experts.1."+head+".gate", own, append([][]float64{e.mlp("experts.1."+head+".0", own)}, common("experts.1", shared)...))
		}
		out = append(out, e.layer("head."+head, relu(e.layer("tower."+head+".0", x)))...)
	}
	return out
}

// sums are weighted sums of vectors.
func (e *equation) sums(name string, x [][]float64) [][]float64 {
	w := e.tensor(name + ".weight")
	out := make([][]float64, len(w)/len(x))
	for j := range out {
		out[j] = make([]float64, len(x[0]))
		for i, v := range x {
			out[j] = sum(out[j], times(float64(w[i*len(out)+j]), v))
		}
	}
	return out
}

func (e *equation) wukong() [][]float64 {
	x := e.fields()
	for _, name := range []string{"layer.0", "layer.1"} {
		var products []float64
		for _, v := range x {
			for _, other := range e.sums(name+".rank", x) {
				products = append(products, dot(v, other))
			}
		}
		made := e.layer(name+".out", relu(e.layer(name+".deep.0", e.norm(name+".products", products, 0))))
		y := append([][]float64{made[:3], made[3:]}, e.sums(name+".linear", x)...)
		if name == "layer.0" { // of four vectors three
			x = e.sums(name+".residual", x)
		}
		for i := range y {
			y[i] = e.norm(name+".norm", sum(y[i], x[i]), 3*i)
		}
		x = y
	}
	return x
}

// gated is x, louder or softer.
func (e *equation) gated(name string, x, by []float64) []float64 {
	factors := e.layer(name+".1", relu(e.layer(name+".0", by)))
	for i, v := range factors {
		factors[i] = 2 / (1 + math.Exp(-v))
	}
	return product(x, factors)
}

func (e *equation) personalised() float64 {
	x := e.gated("domain", e.inputs(), append([]float64{e.number(0), e.number(1)}, e.inputs()...))
	by := slices.Concat(e.sparse()[0], x)
	for _, name := range []string{"deep.label.0", "deep.label.1"} {
		x = e.gated(name+".gate", relu(e.layer(name, x)), by)
	}
	return e.layer("head.label", x)[0]
}

func (e *equation) mixedTokens() float64 {
	all := e.inputs()
	x := [][]float64{e.layer("tokens.0", all[:4]), e.layer("tokens.1", all[4:])}
	for _, name := range []string{"block.0", "block.1"} {
		mixed := [][]float64{slices.Concat(x[0][:2], x[1][:2]), slices.Concat(x[0][2:], x[1][2:])}
		for i := range x {
			s := e.norm(name+".mixed", sum(mixed[i], x[i]), 4*i)
			hidden := e.layer(fmt.Sprintf("%s.%d.0", name, i), s)
			for k, v := range hidden {
				hidden[k] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
			x[i] = e.norm(name+".norm", sum(e.layer(fmt.Sprintf("%s.%d.1", name, i), hidden), s), 4*i)
		}
	}
	return e.layer("head.label", times(0.5, sum(x[0], x[1])))[0]
}

// layerPReLU is a layer with a slope of each number below 0.
func (e *equation) layerPReLU(name string, x []float64) []float64 {
	y := e.layer(name, x)
	for i, v := range y {
		y[i] = max(v, 0) + float64(e.tensor(name + ".slope")[i])*min(v, 0)
	}
	return y
}

func (e *equation) din(x []float64) float64 {
	return e.layer("head.label", e.layerPReLU("deep.1", e.layerPReLU("deep.0", x)))[0]
}

// routed are the outputs of the heads of snr, with two levels of two experts.
func (e *equation) routed(heads ...string) (out []float64) {
	route := func(to string, before [][]float64) []float64 {
		in := make([]float64, len(before[0]))
		for i, v := range before {
			gate := min(max(1.2/(1+math.Exp(-float64(e.tensor(to + ".gates")[i])))-0.1, 0), 1)
			in = sum(in, times(gate, e.times(fmt.Sprintf("%s.%d", to, i), v)))
		}
		return in
	}
	first := [][]float64{e.mlp("experts.0.0", e.inputs()), e.mlp("experts.0.1", e.inputs())}
	second := [][]float64{e.mlp("experts.1.0", route("experts.0.to.0", first)), e.mlp("experts.1.1", route("experts.0.to.1", first))}
	for _, head := range heads {
		out = append(out, e.layer("head."+head, relu(e.layer("tower."+head+".0", route("experts.1.to."+head, second))))...)
	}
	return out
}

// evolved is what an interest evolves to.
func (e *equation) evolved(item []float64, history [][]float64) []float64 {
	unit := func(name string, x [][]float64, attention []float64) (states [][]float64) {
		w := e.tensor(name + ".state")
		h := make([]float64, 3)
		for t, v := range x {
			in, state := e.layer(name, v), make([]float64, 9)
			for k := range h {
				for j := range state {
					state[j] += h[k] * float64(w[9*k+j])
				}
			}
			next := make([]float64, 3)
			for k := range h {
				update, reset := 1/(1+math.Exp(-in[k]-state[k])), 1/(1+math.Exp(-in[3+k]-state[3+k]))
				if attention != nil {
					update *= attention[t]
				}
				next[k] = (1-update)*h[k] + update*math.Tanh(in[6+k]+reset*state[6+k])
			}
			states, h = append(states, next), next
		}
		return states
	}
	interest, meant := unit("evolution.history.interest", history, nil), e.times("evolution.history.attention", item)
	var scores []float64
	for _, h := range interest {
		scores = append(scores, dot(h, meant))
	}
	evolved := append([][]float64{make([]float64, 3)}, unit("evolution.history.evolution", interest, softmax(scores))...)
	return evolved[len(evolved)-1]
}

// transduced is what two layers with two heads and two distances make of the last vector of a sequence, all of which go through them.
func (e *equation) transduced(x [][]float64) []float64 {
	silu := func(z float64) float64 { return z / (1 + math.Exp(-z)) }
	norm := func(x []float64) []float64 {
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x))
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = (v - mean) / math.Sqrt(variance+1e-5)
		}
		return out
	}
	for _, name := range []string{"hstu.history.0", "hstu.history.1"} {
		parts := map[string][][]float64{}
		for _, of := range []string{"gate", "query", "key", "value"} {
			for _, v := range x {
				made := e.layer(name+"."+of, norm(v))
				for i, z := range made {
					made[i] = silu(z)
				}
				parts[of] = append(parts[of], made)
			}
		}
		var next [][]float64
		for i := range x {
			mixed := make([]float64, 4)
			for j := range i + 1 {
				for c := range mixed {
					head := c / 2 * 2
					score := float64(e.tensor(name + ".position")[min(i-j, 1)])
					score += dot(parts["query"][i][head:head+2], parts["key"][j][head:head+2])
					mixed[c] += silu(score) * parts["value"][j][c] / float64(i+1)
				}
			}
			next = append(next, sum(e.layer(name+".out", product(norm(mixed), parts["gate"][i])), x[i]))
		}
		x = next
	}
	return x[len(x)-1]
}

// TestHistories: each entry of a history is weighed by what it has to do with the item at hand, or the interest that it shows evolves, or all go through layers with it.
func TestHistories(t *testing.T) {
	t.Parallel()
	for _, name := range []string{zoo.DIN, zoo.DIEN, zoo.HSTU} {
		testHistory(t, name)
	}
}

func testHistory(t *testing.T, name string) {
	t.Helper()
	features := []zoo.Feature{{Name: "item"}, {Name: "history", Attends: "item"}}
	c := zoo.Config{Name: name, Features: features, Dim: 3, Hidden: []int{6, 4}}
	e := equationOf(mustNew(t, small(c)), graphtest.Shape{Rows: 20, MaxList: 4})
	vectors := func(feature int) (out [][]float64) {
		f := &e.in.Sparse[feature]
		for _, id := range f.Index[f.Offsets[e.row]:f.Offsets[e.row+1]] {
			v := make([]float64, 3)
			for i := range v {
				v[i] = float64(e.in.Values[0][3*int(id)+i])
			}
			out = append(out, v)
		}
		return out
	}
	for r, got := range e.predictions[0] {
		e.row = r
		item, history := make([]float64, 3), make([]float64, 3)
		for _, v := range vectors(0) {
			item = sum(item, v)
		}
		logit := e.din
		switch name {
		case zoo.DIEN:
			history = e.evolved(item, vectors(1))
		case zoo.HSTU:
			history = e.transduced(append(vectors(1), item))
			logit = func(x []float64) float64 { return e.layer("head.label", e.deep(x))[0] }
		default:
			for _, v := range vectors(1) {
				hidden := e.layerPReLU("attention.history.0", slices.Concat(item, v, product(item, v)))
				history = sum(history, times(e.layer("attention.history.1", hidden)[0], v))
			}
		}
		if want := 1 / (1 + math.Exp(-logit(slices.Concat(item, history)))); math.Abs(float64(got)-want) > 1e-5 {
			t.Errorf("%s: row %d: got %v, want %v", name, r, got, want)
		}
	}
}

// TestMixedCross: cross layers of dcnv2 that are mixtures of two experts of rank 2.
func TestMixedCross(t *testing.T) {
	t.Parallel()
	e := equationOf(mustNew(t, small(zoo.Config{
		Name: zoo.DCNv2, Features: []zoo.Feature{{Name: "a"}, {Name: "b"}, {Name: "x", Kind: model.Dense, Dim: 2}}, Dim: 3, Hidden: []int{6, 4}, CrossLayers: 2, CrossRank: 2, CrossExperts: 2,
	})), graphtest.Shape{Rows: 20})
	tanh := func(x []float64) []float64 {
		for i, v := range x {
			x[i] = math.Tanh(v)
		}
		return x
	}
	for r, got := range e.predictions[0] {
		e.row = r
		x0 := slices.Concat(e.fields()...)
		x := x0
		for _, name := range []string{"cross.0", "cross.1"} {
			var experts [][]float64
			for _, expert := range []string{name + ".0", name + ".1"} {
				experts = append(experts, e.times(expert+".up", tanh(e.times(expert+".middle", tanh(e.times(expert+".down", x))))))
			}
			mixed := e.mixture(name+".gate", x, experts)
			for i, b := range e.tensor(name + ".bias") {
				mixed[i] += float64(b)
			}
			x = sum(product(x0, mixed), x)
		}
		if want := 1 / (1 + math.Exp(-e.layer("out", append(x, e.deep(x0)...))[0])); math.Abs(float64(got)-want) > 1e-5 {
			t.Errorf("row %d: got %v, want %v", r, got, want)
		}
	}
}

// related are the outputs of the heads of dbmtl.
func (e *equation) related(heads ...string) (out []float64) {
	bottom, before := e.deep(e.inputs()), []float64(nil)
	for _, head := range heads {
		x := append(relu(e.layer("tower."+head+".0", bottom)), before...)
		x = relu(e.layer("relation."+head+".0", x))
		before = append(before, x...)
		out = append(out, e.layer("head."+head, x)...)
	}
	return out
}

// TestHeadsComputeTheirEquations: of models for several heads.
func TestHeadsComputeTheirEquations(t *testing.T) {
	t.Parallel()
	sigmoid := func(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
	for name, want := range map[string]func(e *equation) [2]float64{
		zoo.MMoE: func(e *equation) [2]float64 {
			z := e.heads("mmoe", "click", "buy")
			return [2]float64{sigmoid(z[0]), sigmoid(z[1])}
		},
		zoo.PLE: func(e *equation) [2]float64 {
			z := e.heads("ple", "click", "buy")
			return [2]float64{sigmoid(z[0]), sigmoid(z[1])}
		},
		zoo.SNR: func(e *equation) [2]float64 {
			z := e.routed("click", "buy")
			return [2]float64{sigmoid(z[0]), sigmoid(z[1])}
		},
		zoo.DBMTL: func(e *equation) [2]float64 {
			z := e.related("click", "buy")
			return [2]float64{sigmoid(z[0]), sigmoid(z[1])}
		},
		zoo.ESMM: func(e *equation) [2]float64 {
			click, buy := e.layer("head.click", e.mlp("deep.click", e.inputs()))[0], e.layer("head.buy", e.mlp("deep.buy", e.inputs()))[0]
			return [2]float64{sigmoid(click), sigmoid(click) * sigmoid(buy)}
		},
	} {
		e := newEquation(t, name, model.Head{Name: "click", Loss: loss.CrossEntropy}, model.Head{Name: "buy", Loss: loss.CrossEntropy})
		for e.row = range e.in.NumRows {
			want := want(e)
			for h := range want {
				if got := float64(e.predictions[h][e.row]); math.Abs(got-want[h]) > 1e-5 {
					t.Fatalf("%s: row %d: head %d predicts %v, want %v", name, e.row, h, got, want[h])
				}
			}
		}
	}
}
