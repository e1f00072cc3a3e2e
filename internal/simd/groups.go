package simd

import "unsafe"

// The functions of this file are what rules are made of that treat a vector of weights as one. Their sums have one order in every family, so
// they give the same bits in each.

// GroupSquares is the sum of the squares of x + decay·w, which must be as long as x: element k is added in lane k mod 8, and then the
// lanes, halves first.
func GroupSquares(x, w []float32, decay float32) float32 {
	w = w[:len(x)]
	if active != Portable {
		return lanesSquaresAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(w), decay)
	}
	var lanes [8]float32
	for k, v := range x {
		v += float32(decay * w[k])
		lanes[k%8] += float32(v * v)
	}
	for half := 4; half > 0; half /= 2 {
		for k := range half {
			lanes[k] += lanes[k+half]
		}
	}
	return lanes[0]
}

// GroupLargest is the largest of the squares of x + decay·w, which must be as long as x, or 0; NaN are left out.
func GroupLargest(x, w []float32, decay float32) float32 {
	w = w[:len(x)]
	if active != Portable {
		return largestSquareAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(w), decay)
	}
	largest := float32(0)
	for k, v := range x {
		v += float32(decay * w[k])
		if v = float32(v * v); v > largest {
			largest = v
		}
	}
	return largest
}

// GroupStep is w -= rate·(g + decay·w).
func GroupStep(w, g []float32, rate, decay float32) {
	g = g[:len(w)]
	switch active {
	case AVX512:
		sgdDecayedAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(g), rate, decay)
	case AVX2:
		sgdDecayedAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(g), rate, decay)
	default:
		for k := range w {
			w[k] -= float32(rate * (g[k] + float32(decay*w[k])))
		}
	}
}

// RowAdagrad is Adagrad with one sum for a vector: state[0] += Σd²/len(w), w -= rate/√state[0]·d, with d = g + decay·w.
func RowAdagrad(w, state, g []float32, rate, decay float32) {
	g = g[:len(w)]
	if active != Portable && len(w) >= narrow {
		rowAdagradAVX2(len(w), unsafe.SliceData(w), &state[0], unsafe.SliceData(g), rate, decay)
		return
	}
	state[0] += GroupSquares(g, w, decay) / float32(len(w))
	GroupStep(w, g, rate/sqrt(state[0]), decay)
}

// GroupAdagrad is RowAdagrad with the largest of the d² and with r = rate/(beta+√state[0]), and then w *= 1 - r·l2/‖w‖, or 0 where that is not above 0, unless l2 is 0.
func GroupAdagrad(w, state, g []float32, rate, decay, beta, l2 float32) {
	g = g[:len(w)]
	if active != Portable && len(w) >= narrow {
		groupAdagradAVX2(len(w), unsafe.SliceData(w), &state[0], unsafe.SliceData(g), rate, decay, beta, l2)
		return
	}
	state[0] += GroupLargest(g, w, decay)
	r := rate / (beta + sqrt(state[0]))
	GroupStep(w, g, r, decay)
	if l2 == 0 {
		return
	}
	shrink, length := r*l2, sqrt(GroupSquares(w, w, 0))
	if length <= shrink {
		clear(w)
		return
	}
	Scale(1-shrink/length, w)
}

// Compensate is dst = g + lambda·g²·(w-seen), within ±most, and g where that is no number; all are as long as dst.
func Compensate(dst, g, w, seen []float32, lambda, most float32) {
	g, w, seen = g[:len(dst)], w[:len(dst)], seen[:len(dst)]
	switch active {
	case AVX512:
		compensateAVX512(len(dst), unsafe.SliceData(w), unsafe.SliceData(seen), unsafe.SliceData(g), unsafe.SliceData(dst), lambda, -most, most)
	case AVX2:
		compensateAVX2(len(dst), unsafe.SliceData(w), unsafe.SliceData(seen), unsafe.SliceData(g), unsafe.SliceData(dst), lambda, -most, most)
	default:
		for k := range dst {
			v := g[k] + float32(float32(g[k]*lambda)*float32(g[k]*(w[k]-seen[k])))
			switch {
			case v != v:
				v = g[k]
			case v < -most:
				v = -most
			case v > most:
				v = most
			}
			dst[k] = v
		}
	}
}

// GroupLeader adds a gradient to the sums of group FTRL for a rate that is not 0: n += g², and where c is 0 z += g - (√n-√(n-g²))/rate·w, else
// z += c·z - l2·w + g - (beta+√n)/rate·w.
func GroupLeader(w, n, z, g []float32, rate, beta, l2, c float32) {
	n, z, g = n[:len(w)], z[:len(w)], g[:len(w)]
	size, pw, pn, pz, pg := len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(z), unsafe.SliceData(g)
	switch {
	case active == AVX512 && c == 0:
		groupLeaderAVX512(size, pw, pn, pz, pg, rate)
	case active == AVX512:
		groupLeaderMadeAVX512(size, pw, pn, pz, pg, rate, beta, l2, c)
	case active == AVX2 && c == 0:
		groupLeaderAVX2(size, pw, pn, pz, pg, rate)
	case active == AVX2:
		groupLeaderMadeAVX2(size, pw, pn, pz, pg, rate, beta, l2, c)
	default:
		for k := range w {
			root := sqrt(n[k])
			n[k] += float32(g[k] * g[k])
			newRoot := sqrt(n[k])
			if c == 0 {
				z[k] += g[k] - float32((newRoot-root)/rate*w[k])
			} else {
				z[k] += float32(c*z[k]) - float32(l2*w[k]) + g[k] - float32((newRoot+beta)/rate*w[k])
			}
		}
	}
}

// GroupWeights makes the weights of group FTRL: w = rate·c·z/(beta+√n+l2·rate).
func GroupWeights(w, n, z []float32, rate, beta, l2, c float32) {
	n, z = n[:len(w)], z[:len(w)]
	switch active {
	case AVX512:
		groupWeightsAVX512(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(z), rate, beta, l2*rate, c)
	case AVX2:
		groupWeightsAVX2(len(w), unsafe.SliceData(w), unsafe.SliceData(n), unsafe.SliceData(z), rate, beta, l2*rate, c)
	default:
		for k := range w {
			w[k] = rate * float32(c*z[k]) / (sqrt(n[k]) + beta + float32(l2*rate))
		}
	}
}
