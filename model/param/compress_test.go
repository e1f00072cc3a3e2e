package param_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/param"
)

// TestCompressorsRead holds what bytedance/monolith's compressors give: fixed_r8 by hand, of range 1, and signs.
func TestCompressorsRead(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	w := []float32{0, 0.0039, 0.004, -0.004, 0.0117, 0.012, 0.5, 0.99, 5, -5, nan, inf, -inf}
	r8 := []float32{0, 0, 1, -1, 1, 2, 64, 127, 127, -128, 0, 127, -128}
	for i := range r8 {
		r8[i] /= 128
	}
	fixed, bit := param.Compressor{Kind: param.CompressFixedR8, Range: 1}, param.Compressor{Kind: param.CompressOneBit, Amplitude: 0.5, Every: 10}
	got := make([]float32, len(w))
	for _, train := range []bool{false, true} {
		if fixed.Read(got, w, train, 3); !slices.Equal(got, r8) {
			t.Errorf("fixed_r8, training %v: %v, want %v", train, got, r8)
		}
	}
	got = got[:3]
	if bit.Read(got, []float32{0.1, -0.1, 0}, false, 0); !slices.Equal(got, []float32{0.5, -0.5, -0.5}) {
		t.Errorf("one_bit is served as %v", got)
	}
	for n, beta := range map[int64]float64{0: 1, 9: 1, 10: math.Sqrt2, 80: 3, 1 << 50: 1e4} {
		x := 0.3
		bit.Read(got[:1], []float32{float32(x)}, true, n)
		if want := 0.5 * math.Tanh(beta*x); math.Abs(float64(got[0])-want) > 1e-6 {
			t.Errorf("one_bit after %d examples: %v, want %v", n, got[0], want)
		}
	}
	for _, c := range []param.Compressor{{Kind: "r8"}, {Kind: param.CompressFixedR8}, {Kind: param.CompressFixedR8, Range: nan}, {Kind: param.CompressOneBit, Amplitude: 1}, {Kind: param.CompressOneBit, Every: 1}} {
		if c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}
