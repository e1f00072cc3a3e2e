package param_test

import (
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestShapesKnowTheirBytes: a row of a shape takes what one of its table does, in every format.
func TestShapesKnowTheirBytes(t *testing.T) {
	t.Parallel()
	for _, v := range []optim.ValueType{optim.FP32, optim.BF16, optim.FP16} {
		l := &param.Layout{Tables: []param.Table{{Name: "t", Segments: []param.Segment{
			{Name: "bias", Dim: 1, Optimizer: optim.FTRL{}}, {Name: "vec", Dim: 7, Optimizer: optim.Stored(optim.Adam{}, v)},
		}}}}
		if got, want := l.Shape().Tables[0].RowBytes(), l.Tables[0].RowBytes(); got != want {
			t.Errorf("%s: %d bytes, the table's rows take %d", v, got, want)
		}
	}
}
