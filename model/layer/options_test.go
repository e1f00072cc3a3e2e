package layer_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/param"
)

// affine is x·W + b with the tensors of a name; without a bias where there is none.
func affine(tensors map[string][]float32, name string, x []float64) []float64 {
	w := tensors[name+".weight"]
	out := project(x, w, len(w)/len(x))
	for i, b := range tensors[name+".bias"] {
		out[i] += float64(b)
	}
	return out
}

func each(x []float64, f func(float64) float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = f(v)
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func dot(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// TestOptionsAreTheEquations: layers in the forms that options give them are their equations, written out over a row of six numbers, two vectors of three or three of two.
func TestOptionsAreTheEquations(t *testing.T) {
	t.Parallel()
	const dim = 6
	tanh, logistic := layer.ActivationNamed("tanh"), layer.ActivationNamed("sigmoid")
	type (
		build    func(b *graph.Builder, x, entries graph.Node, f graph.Sparse) graph.Node
		equation func(tensors map[string][]float32, x []float64, entries [][]float64) []float64
	)
	ofRow := func(f func(b *graph.Builder, x graph.Node) graph.Node) build {
		return func(b *graph.Builder, x, _ graph.Node, _ graph.Sparse) graph.Node {
			return layer.Dense(b, "out", f(b, x), dim, rule)
		}
	}
	out := func(f func(tensors map[string][]float32, x []float64) []float64) equation {
		return func(tensors map[string][]float32, x []float64, _ [][]float64) []float64 {
			return affine(tensors, "out", f(tensors, x))
		}
	}
	vector := func(x []float64, i, n int) []float64 { return x[i*n : (i+1)*n] }
	tests := map[string]struct {
		build    build
		equation equation
	}{
		"attention of two hidden layers, scaled": {
			func(b *graph.Builder, x, entries graph.Node, f graph.Sparse) graph.Node {
				return layer.Attention(b, "a", x, entries, f, layer.AttentionConfig{Hidden: []int{4, 3}, Activation: tanh, Scaled: true, Rule: rule})
			},
			func(tensors map[string][]float32, x []float64, entries [][]float64) []float64 {
				out := make([]float64, dim)
				for _, e := range entries {
					in := append(append([]float64{}, x...), e...)
					for k, v := range e {
						in = append(in, x[k]*v)
					}
					h := each(affine(tensors, "a.1", each(affine(tensors, "a.0", in), math.Tanh)), math.Tanh)
					w := affine(tensors, "a.2", h)[0] / math.Sqrt(dim)
					for k, v := range e {
						out[k] += w * v
					}
				}
				return out
			},
		},
		"co-action over entries": {
			func(b *graph.Builder, x, entries graph.Node, f graph.Sparse) graph.Node {
				weights := b.Expand(layer.Dense(b, "w", x, 2*(dim*dim+dim), rule), f)
				return b.Pool(graph.Pooled{X: layer.CAN(b, "c", entries, weights, layer.CANConfig{Layers: 2, Activation: tanh}), By: graph.Sum})
			},
			func(tensors map[string][]float32, x []float64, entries [][]float64) []float64 {
				out, weights := make([]float64, dim), affine(tensors, "w", x)
				for _, e := range entries {
					for l := range 2 {
						own := weights[l*(dim*dim+dim):]
						next := make([]float64, dim)
						for j := range next {
							next[j] = own[dim*dim+j]
							for k, v := range e {
								next[j] += v * own[k*dim+j]
							}
						}
						e = each(next, math.Tanh)
					}
					for k, v := range e {
						out[k] += v
					}
				}
				return out
			},
		},
		"cin with an activation": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				return layer.CIN(b, "c", x, 3, layer.CINConfig{Maps: []int{2, 1}, Activation: tanh, Rule: rule})
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				before, sums := [][]float64{vector(x, 0, 3), vector(x, 1, 3)}, []float64(nil)
				for _, name := range []string{"c.0.weight", "c.1.weight"} {
					w := tensors[name]
					maps := len(w) / (len(before) * 2)
					next := make([][]float64, maps)
					for h := range next {
						next[h] = make([]float64, 3)
						for i, v := range before {
							for j := range 2 {
								for d := range 3 {
									next[h][d] += float64(w[(i*2+j)*maps+h]) * v[d] * x[j*3+d]
								}
							}
						}
						next[h] = each(next[h], math.Tanh)
						sums = append(sums, next[h][0]+next[h][1]+next[h][2])
					}
					before = next
				}
				return sums
			}),
		},
		"senet with the sigmoid": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				return layer.SENet(b, "s", x, 2, layer.SENetConfig{Hidden: 2, Activation: logistic, Rule: rule})
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				means := []float64{(x[0] + x[1]) / 2, (x[2] + x[3]) / 2, (x[4] + x[5]) / 2}
				h := each(affine(tensors, "s.0", means), func(v float64) float64 { return max(v, 0) })
				a := each(affine(tensors, "s.1", h), sigmoid)
				return []float64{a[0] * x[0], a[0] * x[1], a[1] * x[2], a[1] * x[3], a[2] * x[4], a[2] * x[5]}
			}),
		},
		"pairs weighed by attention": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				cfg := layer.GroupIntConfig{Attention: []int{4, 3}, Activation: tanh, Rule: rule}
				products := layer.GroupInt(b, "g", b.Columns(x, 0, 4), b.Columns(x, 2, 6), 2, cfg)
				cfg.Dot, cfg.Attention = true, []int{}
				return b.Concat(products, layer.GroupInt(b, "d", b.Columns(x, 0, 4), b.Columns(x, 2, 6), 2, cfg))
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				var products, dots []float64
				for _, i := range []int{0, 2} {
					for _, j := range []int{2, 4} {
						p := []float64{x[i] * x[j], x[i+1] * x[j+1]}
						w := affine(tensors, "g.2", each(affine(tensors, "g.1", each(affine(tensors, "g.0", p), math.Tanh)), math.Tanh))[0]
						products = append(products, w*p[0], w*p[1])
						d := p[0] + p[1]
						dots = append(dots, d*affine(tensors, "d.0", []float64{d})[0])
					}
				}
				return append(products, dots...)
			}),
		},
		"all interactions without a bias": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				return layer.AllInt(b, "a", x, 2, layer.AllIntConfig{Sums: 2, NoBias: true, Rule: rule})
			}),
			out(func(tensors map[string][]float32, x []float64) (y []float64) {
				for i := range 3 {
					for s := range 2 {
						sum := make([]float64, 2)
						for j := range 3 {
							for d := range 2 {
								sum[d] += x[j*2+d] * float64(tensors["a.weight"][j*2+s])
							}
						}
						y = append(y, dot(vector(x, i, 2), sum))
					}
				}
				return y
			}),
		},
		"cross with kernel norm": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				return layer.Cross(b, "c", x, layer.CrossConfig{Layers: 1, KernelNorm: true, Rule: rule})
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				w := tensors["c.0.weight"]
				y := project(x, w, dim)
				for j := range y {
					square := 0.
					for k := range dim {
						square += float64(w[k*dim+j]) * float64(w[k*dim+j])
					}
					y[j] = x[j]*(y[j]/math.Sqrt(square)*float64(tensors["c.0.length"][j])+float64(tensors["c.0.bias"][j])) + x[j]
				}
				return y
			}),
		},
		"a perceptron with an activation of each layer": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				cfg := layer.MLPConfig{Hidden: []int{4, 3, 2}, Activation: logistic, Activations: []layer.Activation{tanh, layer.ActivationNamed("linear"), logistic}, Rule: rule}
				return b.Concat(layer.MLP(b, "m", x, cfg), layer.LHUC(b, "l", x, x, []int{2}, cfg))
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				y := each(affine(tensors, "m.2", affine(tensors, "m.1", each(affine(tensors, "m.0", x), math.Tanh))), sigmoid)
				z := x
				for i, f := range []func(float64) float64{math.Tanh, func(v float64) float64 { return v }, sigmoid} {
					name := "l." + string(rune('0'+i))
					z = each(affine(tensors, name, z), f)
					h := each(affine(tensors, name+".gate.0", x), func(v float64) float64 { return max(v, 0) })
					for k, g := range affine(tensors, name+".gate.1", h) {
						z[k] *= 2 * sigmoid(g)
					}
				}
				return append(y, z...)
			}),
		},
		"gates of two hidden layers, and of none": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				return b.Concat(layer.Gate(b, "g", x, x, []int{3, 2}, rule), layer.LHUC(b, "l", x, x, nil, layer.MLPConfig{Hidden: []int{4}, Activation: tanh, Rule: rule}))
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				relu := func(v float64) float64 { return max(v, 0) }
				y := affine(tensors, "g.2", each(affine(tensors, "g.1", each(affine(tensors, "g.0", x), relu)), relu))
				for i, v := range x {
					y[i] = v * 2 * sigmoid(y[i])
				}
				z := each(affine(tensors, "l.0", x), math.Tanh)
				for k, g := range affine(tensors, "l.0.gate.0", x) {
					z[k] *= 2 * sigmoid(g)
				}
				return append(y, z...)
			}),
		},
		"feature gates": {
			ofRow(func(b *graph.Builder, x graph.Node) graph.Node {
				return layer.FeatureGates(b, "g", x, 2, graph.HardConcrete{L0: 1}, rule)
			}),
			out(func(tensors map[string][]float32, x []float64) []float64 {
				y := make([]float64, dim)
				for i, v := range x {
					y[i] = v * min(max(sigmoid(float64(tensors["g.gates"][i/2]))*1.2-0.1, 0), 1)
				}
				return y
			}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attends(t, dim, test.build, test.equation)
		})
	}
}

// TestInitialWeights: matrices begin as the rule says, of all layers, and the lengths of kernel norm are what columns then have on the mean.
func TestInitialWeights(t *testing.T) {
	t.Parallel()
	const in, units = 400, 300
	inits := map[string]func(in, out int) param.Init{
		"none": nil, "glorot normal": param.GlorotNormal, "he uniform": param.HeUniform, "he normal": param.HeNormal,
		"normal":   func(int, int) param.Init { return param.Normal(0.5, 0.25) },
		"constant": func(int, int) param.Init { return param.Constant(-3) },
		"zeros":    func(int, int) param.Init { return param.Zeros() },
	}
	for name, init := range inits {
		own := rule
		own.Init = init
		g := build(t, func(b *graph.Builder, x graph.Node) graph.Node {
			x = layer.Dense(b, "wide", x, in, own)
			return layer.MLP(b, "mlp", x, layer.MLPConfig{Hidden: []int{units}, KernelNorm: true, Rule: own})
		})
		want := param.GlorotUniform
		if init != nil {
			want = init
		}
		for _, d := range g.Layout().Dense {
			switch d.Name {
			case "wide.weight":
				if d.Init != want(5, in) {
					t.Errorf("%s: a matrix begins as %s", name, d.Init)
				}
			case "mlp.0.length":
				weights := make([]float32, in*units)
				want(in, units).Fill(weights, 1, 2, 3)
				squares := 0.
				for _, w := range weights {
					squares += float64(w) * float64(w)
				}
				if got, want := float64(d.Init.A), math.Sqrt(squares/units); math.Abs(got-want) > 0.01*want {
					t.Errorf("%s: lengths begin as %v, columns have %v", name, got, want)
				}
			}
		}
	}
}
