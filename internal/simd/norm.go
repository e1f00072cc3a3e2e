package simd

import (
	"math"
	"unsafe"
)

// LayerNorm normalises one row x (Ba et al., 2016): y = gamma·((x-mean)·inv) + beta, where mean is that of x and
// inv = 1/√(variance+epsilon), which it returns for [AddLayerNormGrad]. All must be as long as x, which must not be empty.
func LayerNorm(x, gamma, beta, y []float32, epsilon float32) (mean, inv float32) {
	n := len(x)
	gamma, beta, y = gamma[:n], beta[:n], y[:n]
	mean = Sum(x) / float32(n)
	inv = float32(1 / math.Sqrt(float64(SumSquares(x, mean)/float32(n)+epsilon)))
	switch active {
	case AVX512:
		normaliseAVX512(n, unsafe.SliceData(x), unsafe.SliceData(gamma), unsafe.SliceData(beta), unsafe.SliceData(y), mean, inv)
	case AVX2:
		normaliseAVX2(n, unsafe.SliceData(x), unsafe.SliceData(gamma), unsafe.SliceData(beta), unsafe.SliceData(y), mean, inv)
	default:
		for i, v := range x {
			y[i] = float32(gamma[i]*((v-mean)*inv)) + beta[i]
		}
	}
	return mean, inv
}

// AddLayerNormGrad adds the gradients of one row to dx, dgamma and dbeta; mean and inv are what [LayerNorm] returned. space
// is 2·len(x) floats that it overwrites. dx may be nil.
func AddLayerNormGrad(x, dy, gamma []float32, mean, inv float32, dx, dgamma, dbeta, space []float32) {
	n := len(x)
	dy, gamma, dgamma, dbeta = dy[:n], gamma[:n], dgamma[:n], dbeta[:n]
	xhat, dhat := space[:n], space[n:2*n]
	switch active {
	case AVX512:
		normaliseGradAVX512(n, unsafe.SliceData(x), unsafe.SliceData(dy), unsafe.SliceData(gamma), unsafe.SliceData(dgamma), unsafe.SliceData(dbeta), unsafe.SliceData(xhat), unsafe.SliceData(dhat), mean, inv)
	case AVX2:
		normaliseGradAVX2(n, unsafe.SliceData(x), unsafe.SliceData(dy), unsafe.SliceData(gamma), unsafe.SliceData(dgamma), unsafe.SliceData(dbeta), unsafe.SliceData(xhat), unsafe.SliceData(dhat), mean, inv)
	default:
		for i, v := range x {
			xhat[i], dhat[i] = (v-mean)*inv, dy[i]*gamma[i]
			dgamma[i] += float32(dy[i] * xhat[i])
			dbeta[i] += dy[i]
		}
	}
	if dx == nil || n == 0 {
		return
	}
	// dx = inv·(dhat - mean(dhat) - x̂·mean(dhat·x̂))
	dx = dx[:n]
	m, v := Sum(dhat)/float32(n), Dot(dhat, xhat)/float32(n)
	switch active {
	case AVX512:
		addCentredAVX512(n, unsafe.SliceData(xhat), unsafe.SliceData(dhat), unsafe.SliceData(dx), m, v, inv)
	case AVX2:
		addCentredAVX2(n, unsafe.SliceData(xhat), unsafe.SliceData(dhat), unsafe.SliceData(dx), m, v, inv)
	default:
		for i := range dx {
			dx[i] += float32((dhat[i] - m - float32(xhat[i]*v)) * inv)
		}
	}
}

// Batch norm (Ioffe and Szegedy, 2015) is made of functions of one row whose other arguments are numbers of its columns. Sums
// are float64, in the order in which the rows are given, and the same bits in every family.

// AddWide adds a row x to sums, which must be as long.
func AddWide(x []float32, sums []float64) {
	sums = sums[:len(x)]
	switch active {
	case AVX512:
		addWideAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(sums))
	case AVX2:
		addWideAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(sums))
	default:
		for i, v := range x {
			sums[i] += float64(v)
		}
	}
}

// AddWideSquares adds (x-mean)² of a row x to squares; all must be as long as x.
func AddWideSquares(x []float32, mean, squares []float64) {
	mean, squares = mean[:len(x)], squares[:len(x)]
	switch active {
	case AVX512:
		addWideSquaresAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(mean), unsafe.SliceData(squares))
	case AVX2:
		addWideSquaresAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(mean), unsafe.SliceData(squares))
	default:
		for i, v := range x {
			d := float64(v) - mean[i]
			squares[i] += float64(d * d)
		}
	}
}

// AddWideGrads adds dy of a row to sums, and dy·((x-mean)·inv) to products; all must be as long as x.
func AddWideGrads(x, dy, mean, inv []float32, sums, products []float64) {
	n := len(x)
	dy, mean, inv, sums, products = dy[:n], mean[:n], inv[:n], sums[:n], products[:n]
	switch active {
	case AVX512:
		addWideGradsAVX512(n, unsafe.SliceData(x), unsafe.SliceData(dy), unsafe.SliceData(mean), unsafe.SliceData(inv), unsafe.SliceData(sums), unsafe.SliceData(products))
	case AVX2:
		addWideGradsAVX2(n, unsafe.SliceData(x), unsafe.SliceData(dy), unsafe.SliceData(mean), unsafe.SliceData(inv), unsafe.SliceData(sums), unsafe.SliceData(products))
	default:
		for i, d := range dy {
			sums[i] += float64(d)
			products[i] += float64(float32(d * ((x[i] - mean[i]) * inv[i])))
		}
	}
}

// NormaliseColumns is y = gamma·((x-mean)·inv) + beta for a row x; all must be as long as x.
func NormaliseColumns(x, mean, inv, gamma, beta, y []float32) {
	n := len(x)
	mean, inv, gamma, beta, y = mean[:n], inv[:n], gamma[:n], beta[:n], y[:n]
	switch active {
	case AVX512:
		normaliseColumnsAVX512(n, unsafe.SliceData(x), unsafe.SliceData(mean), unsafe.SliceData(inv), unsafe.SliceData(gamma), unsafe.SliceData(beta), unsafe.SliceData(y))
	case AVX2:
		normaliseColumnsAVX2(n, unsafe.SliceData(x), unsafe.SliceData(mean), unsafe.SliceData(inv), unsafe.SliceData(gamma), unsafe.SliceData(beta), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = float32(gamma[i]*((v-mean[i])*inv[i])) + beta[i]
		}
	}
}

// AddColumnsGrad adds factor·((dy-m) - ((x-mean)·inv)·v) to dx for a row: with m the mean of dy, v that of dy·x̂ and factor
// gamma·inv this is the gradient through the batch's statistics. All must be as long as x.
func AddColumnsGrad(x, dy, mean, inv, m, v, factor, dx []float32) {
	n := len(x)
	dy, mean, inv, m, v, factor, dx = dy[:n], mean[:n], inv[:n], m[:n], v[:n], factor[:n], dx[:n]
	switch active {
	case AVX512:
		addColumnsGradAVX512(n, unsafe.SliceData(x), unsafe.SliceData(dy), unsafe.SliceData(mean), unsafe.SliceData(inv), unsafe.SliceData(m), unsafe.SliceData(v), unsafe.SliceData(factor), unsafe.SliceData(dx))
	case AVX2:
		addColumnsGradAVX2(n, unsafe.SliceData(x), unsafe.SliceData(dy), unsafe.SliceData(mean), unsafe.SliceData(inv), unsafe.SliceData(m), unsafe.SliceData(v), unsafe.SliceData(factor), unsafe.SliceData(dx))
	default:
		for i := range dx {
			h := float32((x[i] - mean[i]) * inv[i])
			dx[i] += float32((dy[i] - m[i] - float32(h*v[i])) * factor[i])
		}
	}
}
