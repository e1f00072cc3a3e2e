package simd

import (
	"math"
	"unsafe"
)

// ReLU is y = max(x, 0); of a NaN it is a NaN. y must be as long as x and may be x.
func ReLU(x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		reluAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		reluAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = max(v, 0)
		}
	}
}

// ReLUGrad is dx = dy where y > 0, else 0. y is what [ReLU] gave, or what it was given. All must be as long as y; dx may be dy.
func ReLUGrad(y, dy, dx []float32) {
	dy, dx = dy[:len(y)], dx[:len(y)]
	switch active {
	case AVX512:
		reluGradAVX512(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	case AVX2:
		reluGradAVX2(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	default:
		for i, v := range y {
			d := float32(0)
			if v > 0 {
				d = dy[i]
			}
			dx[i] = d
		}
	}
}

// AddReLUGrad adds what [ReLUGrad] gives to dx.
func AddReLUGrad(y, dy, dx []float32) {
	dy, dx = dy[:len(y)], dx[:len(y)]
	switch active {
	case AVX512:
		addReluGradAVX512(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	case AVX2:
		addReluGradAVX2(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	default:
		for i, v := range y {
			d := float32(0)
			if v > 0 {
				d = dy[i]
			}
			dx[i] += d
		}
	}
}

// AddSigmoidGrad adds dy·y·(1-y) to dx; y is what [Sigmoid] gave. All must be as long as y.
func AddSigmoidGrad(y, dy, dx []float32) {
	dy, dx = dy[:len(y)], dx[:len(y)]
	switch active {
	case AVX512:
		addSigmoidGradAVX512(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	case AVX2:
		addSigmoidGradAVX2(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	default:
		for i, v := range y {
			dx[i] += float32(float32(dy[i]*v) * (1 - v))
		}
	}
}

// AddTanhGrad adds dy·(1-y²) to dx; y is what [Tanh] gave. All must be as long as y.
func AddTanhGrad(y, dy, dx []float32) {
	dy, dx = dy[:len(y)], dx[:len(y)]
	switch active {
	case AVX512:
		addTanhGradAVX512(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	case AVX2:
		addTanhGradAVX2(len(y), unsafe.SliceData(y), unsafe.SliceData(dy), unsafe.SliceData(dx))
	default:
		for i, v := range y {
			dx[i] += float32(dy[i] * (1 - float32(v*v)))
		}
	}
}

// Exp is y = eˣ within 2 units in the last place, the same bits in every family. y must be as long as x and may be x.
func Exp(x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		expAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		expAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = exp(v)
		}
	}
}

// Sigmoid is y = 1/(1+e⁻ˣ) within 3 units in the last place, the same bits in every family. y must be as long as x and may be
// x.
func Sigmoid(x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		sigmoidAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		sigmoidAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = sigmoid(v)
		}
	}
}

// Tanh is y = tanh x within 3 units in the last place, the same bits in every family. y must be as long as x and may be x.
func Tanh(x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		tanhAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		tanhAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = tanh(v)
		}
	}
}

// Log is y = ln x within 2 units in the last place, the same bits in every family. y must be as long as x and may be x.
func Log(x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		logAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		logAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = log(v)
		}
	}
}

// Softmax is y = eˣ / Σ eˣ of one row, with the largest x taken off before. A NaN or an infinity above makes all of y NaN. y
// must be as long as x and may be x.
func Softmax(x, y []float32) {
	y = y[:len(x)]
	if len(x) == 0 {
		return
	}
	shift := Max(x)
	switch active {
	case AVX512:
		expShiftedAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y), shift)
	case AVX2:
		expShiftedAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y), shift)
	default:
		for i, v := range x {
			y[i] = exp(v - shift)
		}
	}
	Scale(1/Sum(y), y)
}

// AddSoftmaxGrad adds y·(dy - Σ y·dy) to dx for one row; y is what [Softmax] gave.
func AddSoftmaxGrad(y, dy, dx []float32) {
	dy, dx = dy[:len(y)], dx[:len(y)]
	AddMul(y, dy, dx)
	AddScaled(-Dot(y, dy), y, dx)
}

// exp, tanh and log are the polynomials of Cephes (Moshier, 1989) as the assembly has them; see its generator.
func exp(x float32) float32 {
	if !(x <= 89) { // NaN stays
		if x > 89 {
			x = 89
		}
	} else if x < -104 {
		x = -104
	}
	f := float32(math.RoundToEven(float64(x * 1.44269504088896341)))
	n := int32(-1 << 31) // of NaN, as the processor has it
	if f == f {
		n = int32(f)
	}
	f = float32(n)
	r := x - float32(f*0.693359375)
	r -= float32(f * -2.12194440e-4)
	p := horner(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	p = float32(p*float32(r*r)) + r + 1
	half := n >> 1
	p *= math.Float32frombits(uint32(half+127) << 23)
	return p * math.Float32frombits(uint32(n-half+127)<<23)
}

func horner(x float32, c ...float32) float32 {
	p := float32(x * c[0])
	for i, v := range c[1:] {
		p += v
		if i < len(c)-2 {
			p *= x
		}
	}
	return p
}

func sigmoid(x float32) float32 {
	e, above := exp(math.Float32frombits(math.Float32bits(x)|0x80000000)), float32(1)
	if x < 0 {
		above = e
	}
	return above / (e + 1)
}

func tanh(x float32) float32 {
	size := math.Float32frombits(math.Float32bits(x) & 0x7fffffff)
	if size < 0.625 {
		z := float32(x * x)
		p := horner(z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
		return float32(float32(p*z)*x) + x
	}
	far := 1 - 2/(exp(size+size)+1)
	return math.Float32frombits(math.Float32bits(far) | math.Float32bits(x)&0x80000000)
}

func log(x float32) float32 {
	switch {
	case x < 0:
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	case !(x < float32(math.Inf(1))):
		return x
	}
	y, n := x, float32(0)
	if x < 0x1p-126 {
		y, n = x*0x1p23, 23
	}
	n = float32(int32(math.Float32bits(y)>>23)-126) - n
	m := math.Float32frombits(math.Float32bits(y)&0x007fffff | 0x3f000000)
	if m < 0.707106781186547524 {
		n, m = n-1, m+m
	}
	m--
	z := float32(m * m)
	p := horner(m, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
		-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
	p = float32(float32(p*m) * z)
	p += float32(n * -2.12194440e-4)
	p -= float32(z * 0.5)
	return m + p + float32(n*0.693359375)
}
