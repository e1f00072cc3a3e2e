package arrowx_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/arrowx"
)

func TestCounting(t *testing.T) {
	var c arrowx.Counting
	first := arrow.Int32Traits.CastFromBytes(c.To(3).Bytes())
	for _, n := range []int{0, 3, 1000, 7, 1001, 5000} {
		at := arrow.Int32Traits.CastFromBytes(c.To(n).Bytes())
		if len(at) <= n {
			t.Fatalf("to %d: %d offsets", n, len(at))
		}
		for i, v := range at {
			if int(v) != i {
				t.Fatalf("to %d: offset %d is %d", n, i, v)
			}
		}
	}
	if first[3] != 3 {
		t.Error("a buffer that was handed out has changed")
	}
}
