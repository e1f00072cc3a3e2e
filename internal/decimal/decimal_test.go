package decimal_test

import (
	"errors"
	"math"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/internal/decimal"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"0", "-0", "+7", "1.5", ".5", "5.", "1e3", "-1E-3", "NaN", "inf", "-Infinity", "", "x", "1e400", "1,5", " 1"} {
		for _, bits := range []int{32, 64} {
			got, err := decimal.Parse(s, bits)
			want, wantErr := strconv.ParseFloat(s, bits)
			if math.Float64bits(got) != math.Float64bits(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%q is %g, %v; strconv says %g, %v", s, got, err, want, wantErr)
			}
		}
	}
	for _, s := range []string{"1_000", "430548_1007", "0x10", "0X1P-2", "0x_1p0", "1_0.5"} {
		if got, err := decimal.Parse(s, 64); !errors.Is(err, strconv.ErrSyntax) {
			t.Errorf("%q is %g, %v", s, got, err)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	text := []byte("123.456789")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := decimal.Parse(string(text), 32); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}
