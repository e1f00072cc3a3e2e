package simd

import (
	"math"
	"unsafe"
)

// The rules update w, and state beside it, by the gradient g; all must be as long as w. They give the bits of the plain
// formulas of package optim, in its order of operations, in every family.

// SGD is w -= rate·g.
func SGD(w, g []float32, rate float32) {
	g = g[:len(w)]
	switch active {
	case AVX512:
		sgdAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(g), rate)
	case AVX2:
		sgdAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(g), rate)
	default:
		for k := range w {
			w[k] -= float32(rate * g[k])
		}
	}
}

// EMA is w = decay·w + rest·g, an exponential moving average.
func EMA(w, g []float32, decay, rest float32) {
	g = g[:len(w)]
	switch active {
	case AVX512:
		emaAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(g), decay, rest)
	case AVX2:
		emaAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(g), decay, rest)
	default:
		for k := range w {
			w[k] = float32(decay*w[k]) + float32(rest*g[k])
		}
	}
}

// Adagrad is g += decay·w, n += g², w -= rate·g/√n; g itself stays as it is.
func Adagrad(w, n, g []float32, rate, decay float32) {
	n, g = n[:len(w)], g[:len(w)]
	switch active {
	case AVX512:
		adagradAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(g), rate, decay)
	case AVX2:
		adagradAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(g), rate, decay)
	default:
		for k := range w {
			d := g[k] + float32(decay*w[k])
			n[k] += float32(d * d)
			w[k] -= rate * d / sqrt(n[k])
		}
	}
}

// AdagradW is n += g², w -= rate·g/√n + shrink·w.
func AdagradW(w, n, g []float32, rate, shrink float32) {
	n, g = n[:len(w)], g[:len(w)]
	switch active {
	case AVX512:
		adagradWAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(g), rate, shrink)
	case AVX2:
		adagradWAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(g), rate, shrink)
	default:
		for k := range w {
			n[k] += float32(g[k] * g[k])
			w[k] -= rate*g[k]/sqrt(n[k]) + float32(shrink*w[k])
		}
	}
}

// AveragesRule is what an update is made of that keeps decaying sums of squares, RMSprop's or Adadelta's.
type AveragesRule struct {
	// Rho multiplies the former sum and Rest what is added to it.
	Rate, Rho, Rest, Epsilon, Decay float32
}

// RMSprop is g += decay·w, n = ρ·n + rest·g², w -= rate·g/(√n+ε); g itself stays as it is.
func RMSprop(w, n, g []float32, o AveragesRule) {
	n, g = n[:len(w)], g[:len(w)]
	switch active {
	case AVX512:
		rmspropAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(g), o.Rate, o.Rho, o.Rest, o.Epsilon, o.Decay)
	case AVX2:
		rmspropAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(g), o.Rate, o.Rho, o.Rest, o.Epsilon, o.Decay)
	default:
		for k := range w {
			d := g[k] + float32(o.Decay*w[k])
			n[k] = float32(o.Rho*n[k]) + float32(o.Rest*float32(d*d))
			w[k] -= o.Rate * d / (sqrt(n[k]) + o.Epsilon)
		}
	}
}

// Adadelta is g += decay·w, a = ρ·a + rest·g², u = √(c+ε)·g/√(a+ε), w -= rate·u, c = ρ·c + rest·u²; g itself stays as it is.
func Adadelta(w, a, c, g []float32, o AveragesRule) {
	a, c, g = a[:len(w)], c[:len(w)], g[:len(w)]
	n, pw, pa, pc, pg := len(w), unsafe.SliceData(w), unsafe.SliceData(a), unsafe.SliceData(c), unsafe.SliceData(g)
	switch active {
	case AVX512:
		adadeltaAVX512(n, pw, pa, pc, pg, o.Rate, o.Rho, o.Rest, o.Epsilon, o.Decay)
	case AVX2:
		adadeltaAVX2(n, pw, pa, pc, pg, o.Rate, o.Rho, o.Rest, o.Epsilon, o.Decay)
	default:
		for k := range w {
			d := g[k] + float32(o.Decay*w[k])
			a[k] = float32(o.Rho*a[k]) + float32(o.Rest*float32(d*d))
			u := d * sqrt(c[k]+o.Epsilon) / sqrt(a[k]+o.Epsilon)
			w[k] -= float32(o.Rate * u)
			c[k] = float32(o.Rho*c[k]) + float32(o.Rest*float32(u*u))
		}
	}
}

// MomentumRule is what an update with momentum is made of.
type MomentumRule struct {
	Rate, Mu, Decay float32
	Nesterov        bool
}

// Momentum is g += decay·w, v' = μ·v - rate·g, w += v', v = v', or for Nesterov's form w += (1+μ)·v' - μ·v; g itself stays as it is.
func Momentum(w, v, g []float32, o MomentumRule) {
	v, g = v[:len(w)], g[:len(w)]
	n, pw, pv, pg := len(w), unsafe.SliceData(w), unsafe.SliceData(v), unsafe.SliceData(g)
	switch {
	case active == AVX512 && o.Nesterov:
		momentumNesterovAVX512(n, pw, pv, pg, o.Rate, o.Mu, o.Decay, 1+o.Mu)
	case active == AVX512:
		momentumAVX512(n, pw, pv, pg, o.Rate, o.Mu, o.Decay)
	case active == AVX2 && o.Nesterov:
		momentumNesterovAVX2(n, pw, pv, pg, o.Rate, o.Mu, o.Decay, 1+o.Mu)
	case active == AVX2:
		momentumAVX2(n, pw, pv, pg, o.Rate, o.Mu, o.Decay)
	default:
		for k := range w {
			former := float32(o.Mu * v[k])
			step := former - float32(o.Rate*(g[k]+float32(o.Decay*w[k])))
			v[k] = step
			if o.Nesterov {
				step = float32((1+o.Mu)*step) - former
			}
			w[k] += step
		}
	}
}

// AdamRule is what an update of Adam is made of.
type AdamRule struct {
	// Rate has the corrections of both biases in it.
	Rate, Beta1, Epsilon, Decay float32
	// C1 and C2 are 1-β₁ and 1-β₂, rounded once.
	C1, C2   float32
	Nesterov bool
}

// Adam is g += decay·w, m += (g-m)·c1, v += (g²-v)·c2, w -= rate·m/(√v+ε), with c1·g + β₁·m in place of the last m for
// Nesterov's form; g itself stays as it is.
func Adam(w, m, v, g []float32, o AdamRule) {
	m, v, g = m[:len(w)], v[:len(w)], g[:len(w)]
	n, pw, pm, pv, pg := len(w), unsafe.SliceData(w), unsafe.SliceData(m), unsafe.SliceData(v), unsafe.SliceData(g)
	switch {
	case active == AVX512 && o.Nesterov:
		adamNesterovAVX512(n, pw, pm, pv, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX512:
		adamAVX512(n, pw, pm, pv, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay)
	case active == AVX2 && o.Nesterov:
		adamNesterovAVX2(n, pw, pm, pv, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX2:
		adamAVX2(n, pw, pm, pv, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay)
	default:
		for k := range w {
			d := g[k] + float32(o.Decay*w[k])
			mk := m[k] + float32((d-m[k])*o.C1)
			vk := v[k] + float32((float32(d*d)-v[k])*o.C2)
			m[k], v[k] = mk, vk
			if o.Nesterov {
				mk = float32(o.C1*d) + float32(o.Beta1*mk)
			}
			w[k] -= float32(o.Rate*mk) / (sqrt(vk) + o.Epsilon)
		}
	}
}

// adamRates is Adam with a rate for each weight in place of o.Rate.
func adamRates(w, m, v, g, rates []float32, o AdamRule) {
	m, v, g, rates = m[:len(w)], v[:len(w)], g[:len(w)], rates[:len(w)]
	n, pw, pm, pv, pg, pr := len(w), unsafe.SliceData(w), unsafe.SliceData(m), unsafe.SliceData(v), unsafe.SliceData(g), unsafe.SliceData(rates)
	switch {
	case active == AVX512 && o.Nesterov:
		adamNesterovRatesAVX512(n, pw, pm, pv, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX512:
		adamRatesAVX512(n, pw, pm, pv, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay)
	case active == AVX2 && o.Nesterov:
		adamNesterovRatesAVX2(n, pw, pm, pv, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX2:
		adamRatesAVX2(n, pw, pm, pv, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay)
	default:
		for k := range w {
			o.Rate = rates[k]
			Adam(w[k:k+1], m[k:k+1], v[k:k+1], g[k:k+1], o)
		}
	}
}

// AMSGrad is [Adam] with h = max(h, v) in place of v in the denominator (Reddi, Kale and Kumar, 2018).
func AMSGrad(w, m, v, h, g []float32, o AdamRule) {
	m, v, h, g = m[:len(w)], v[:len(w)], h[:len(w)], g[:len(w)]
	n, pw, pm, pv, ph, pg := len(w), unsafe.SliceData(w), unsafe.SliceData(m), unsafe.SliceData(v), unsafe.SliceData(h), unsafe.SliceData(g)
	switch {
	case active == AVX512 && o.Nesterov:
		amsgradNesterovAVX512(n, pw, pm, pv, ph, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX512:
		amsgradAVX512(n, pw, pm, pv, ph, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay)
	case active == AVX2 && o.Nesterov:
		amsgradNesterovAVX2(n, pw, pm, pv, ph, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX2:
		amsgradAVX2(n, pw, pm, pv, ph, pg, o.Rate, o.C1, o.C2, o.Epsilon, o.Decay)
	default:
		for k := range w {
			d := g[k] + float32(o.Decay*w[k])
			mk := m[k] + float32((d-m[k])*o.C1)
			vk := v[k] + float32((float32(d*d)-v[k])*o.C2)
			m[k], v[k] = mk, vk
			if !(h[k] > vk) { // a NaN is kept
				h[k] = vk
			}
			if o.Nesterov {
				mk = float32(o.C1*d) + float32(o.Beta1*mk)
			}
			w[k] -= float32(o.Rate*mk) / (sqrt(h[k]) + o.Epsilon)
		}
	}
}

// amsgradRates is AMSGrad with a rate for each weight in place of o.Rate.
func amsgradRates(w, m, v, h, g, rates []float32, o AdamRule) {
	m, v, h, g, rates = m[:len(w)], v[:len(w)], h[:len(w)], g[:len(w)], rates[:len(w)]
	n, pw, pm, pv, ph, pg, pr := len(w), unsafe.SliceData(w), unsafe.SliceData(m), unsafe.SliceData(v), unsafe.SliceData(h), unsafe.SliceData(g), unsafe.SliceData(rates)
	switch {
	case active == AVX512 && o.Nesterov:
		amsgradNesterovRatesAVX512(n, pw, pm, pv, ph, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX512:
		amsgradRatesAVX512(n, pw, pm, pv, ph, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay)
	case active == AVX2 && o.Nesterov:
		amsgradNesterovRatesAVX2(n, pw, pm, pv, ph, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
	case active == AVX2:
		amsgradRatesAVX2(n, pw, pm, pv, ph, pg, pr, o.C1, o.C2, o.Epsilon, o.Decay)
	default:
		for k := range w {
			o.Rate = rates[k]
			AMSGrad(w[k:k+1], m[k:k+1], v[k:k+1], h[k:k+1], g[k:k+1], o)
		}
	}
}

// FTRL is FTRL-Proximal (McMahan et al., 2013) as package optim has it, for a rate that is not 0.
func FTRL(w, n, z, g []float32, rate, beta, l1, l2 float32) {
	n, z, g = n[:len(w)], z[:len(w)], g[:len(w)]
	switch active {
	case AVX512:
		ftrlAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(z), unsafe.SliceData(g), rate, beta, l1, l2, l2*rate)
	case AVX2:
		ftrlAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(z), unsafe.SliceData(g), rate, beta, l1, l2, l2*rate)
	default:
		for k := range w {
			root := sqrt(n[k])
			n[k] += float32(g[k] * g[k])
			newRoot := sqrt(n[k])
			if shrunk := shrink(z[k], l1); shrunk != 0 {
				z[k] += shrunk - float32(l2*w[k]) + g[k] - float32((beta+newRoot)/rate*w[k])
			} else {
				z[k] += g[k] - float32((newRoot-root)/rate*w[k])
			}
			w[k] = float32(rate*shrink(z[k], l1)) / (beta + newRoot + float32(l2*rate))
		}
	}
}

func shrink(z, l1 float32) float32 {
	switch {
	case z > l1:
		return l1 - z
	case z < -l1:
		return -l1 - z
	}
	return 0
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
