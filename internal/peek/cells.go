package peek

import (
	"hash/maphash"
	"math"
	"slices"
)

// cell is one column's value in one record: the bits of a number, or a NaN with a text's hash. Equal values are equal
// cells.
type cell uint64

const (
	missing  cell = 0x7ff8_0000_0000_0000 // a NaN that no hash gives
	textBits cell = 0x7ffc_0000_0000_0000
	hashMask cell = 0x0003_ffff_ffff_ffff
)

// maxCells is how many cells are kept of all columns together: 64 MiB.
const maxCells = 8 << 20

// seed is that of the hashes of texts. Nothing that is written depends on it.
var seed = maphash.MakeSeed()

func textCell(s string) cell { return textBits | cell(maphash.String(seed, s))&hashMask }

// wholeCell is the cell of a whole number beyond those that floats hold.
func wholeCell(x uint64) cell { return textBits | cell(x*0x9e3779b97f4a7c15>>14)&hashMask }

func numberCell(x float64) cell {
	if x == 0 { // -0 too
		x = 0
	}
	return cell(math.Float64bits(x))
}

// number returns the cell's number; false for texts and missing values.
func (c cell) number() (float64, bool) {
	x := math.Float64frombits(uint64(c))
	return x, !math.IsNaN(x)
}

// keep remembers the value of a record.
func (c *Column) keep(record int64, v cell) {
	for int64(len(c.cells)) < record {
		c.cells = append(c.cells, missing)
	}
	c.cells = append(c.cells, v)
}

// cell is the column's value in a record.
func (c *Column) cell(record int) cell {
	if record >= len(c.cells) {
		return missing
	}
	return c.cells[record]
}

// spread says how a column's numbers lie.
type spread struct {
	n                 int
	mean, std         float64
	median, low, high float64 // low and high: the first and last hundredth
	skew, logSkew     float64 // skewness as they are, and of sign(x)·ln(1 + |x|)
}

// spread describes the numbers of records with one value; n is 0 where there are none.
func (c *Column) spread() spread {
	var xs []float64
	for _, v := range c.cells {
		if x, ok := v.number(); ok {
			xs = append(xs, x)
		}
	}
	return spreadOf(xs)
}

func spreadOf(xs []float64) spread {
	s := spread{n: len(xs)}
	if s.n == 0 {
		return s
	}
	slices.Sort(xs)
	at := func(share float64) float64 { return xs[int(share*float64(len(xs)-1)+.5)] }
	s.median, s.low, s.high = at(.5), at(.01), at(.99)
	s.mean, s.std, s.skew = moments(xs)
	for i, x := range xs {
		xs[i] = math.Copysign(math.Log1p(math.Abs(x)), x)
	}
	_, _, s.logSkew = moments(xs)
	return s
}

// moments returns the mean, the standard deviation and the skewness, which is 0 where all are the same.
func moments(xs []float64) (mean, std, skew float64) {
	n := float64(len(xs))
	for _, x := range xs {
		mean += x / n
	}
	var m2, m3 float64
	for _, x := range xs {
		d := x - mean
		m2 += d * d / n
		m3 += d * d * d / n
	}
	if std = math.Sqrt(m2); std > 0 {
		skew = m3 / (m2 * std)
	}
	return mean, std, skew
}

// fewNumbers is how many numbers say nothing yet about how others lie.
const fewNumbers = 50

// longTail reports whether most numbers are small and few are large, so that their logarithm lies more evenly.
func (s *spread) longTail() bool {
	return s.n >= fewNumbers && s.skew > 2 && s.high > 10 && math.Abs(s.logSkew) < s.skew/2
}

// isCount reports whether whole numbers lie as counts do: from about 0 on, with a long tail. Ids are spread evenly.
func (c *Column) isCount(s *spread) bool {
	return c.MaxValues == 1 && c.Min >= -16 && c.Min <= 1 && c.Distinct >= 10 && s.longTail() && s.high >= 5*max(s.median, 1)
}

// comesAgain reports whether a value of the kept records comes twice.
func (c *Column) comesAgain() bool {
	cells := slices.DeleteFunc(slices.Clone(c.cells), func(v cell) bool { return v == missing })
	slices.Sort(cells)
	return len(slices.Compact(slices.Clone(cells))) < len(cells)
}
