package synthsource

import "math"

// mix hashes two words into one: one step of SplitMix64 (Steele, Lea and Flood, 2014) after adding b+1 times the golden
// gamma to a.
func mix(a, b uint64) uint64 {
	z := a + (b+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// draws is a sequence of random words that belongs to one example.
type draws struct{ seed, n uint64 }

func (d *draws) word() uint64 {
	d.n++
	return mix(d.seed, d.n)
}

// unit draws from [0, 1).
func (d *draws) unit() float64 { return unit(d.word()) }

// below draws from 0..n-1; its bias is below n/2⁵³.
func (d *draws) below(n int) int { return int(d.unit() * float64(n)) }

// unit maps a word to [0, 1) by its 53 high bits.
func unit(word uint64) float64 { return float64(word>>11) / (1 << 53) }

// spread is a sequence of points that fill the unit cube of four dimensions evenly, whatever its start: point k is
// frac(start + k·a) with a = (1/g, 1/g², 1/g³, 1/g⁴) and g the root of x⁵ = x + 1 (Roberts, «The Unreasonable
// Effectiveness of Quasirandom Sequences», 2018, R4). Fractions are words, so the sum wraps by itself and is exact.
type spread [4]uint64

// newSpread starts a sequence at a random point.
func newSpread(seed uint64) spread {
	var s spread
	for d := range s {
		s[d] = mix(seed, uint64(d))
	}
	return s
}

// at returns coordinate d of point k, in [0, 1).
func (s spread) at(d, k int) float64 {
	// 2⁶⁴/g, 2⁶⁴/g², 2⁶⁴/g³ and 2⁶⁴/g⁴, g = 1.1673039782614186843.
	step := [4]uint64{0xdb4f0b9175ae2165, 0xbbe0563303a4615f, 0xa0f2ec75a1fe1575, 0x89e182857d9ed688}
	return unit(s[d] + uint64(k)*step[d])
}

// normal is the quantile function of the standard normal distribution, for u in [0, 1).
func normal(u float64) float64 {
	// Half of unit's resolution away from 0, where the quantile is infinite.
	return math.Sqrt2 * math.Erfinv(2*u-1+1.0/(1<<53))
}

// popularity is the cumulated share of the places of a catalogue after Zipf and Mandelbrot: place k has a share
// proportional to 1/(k+offset)^exponent.
type popularity []float64

func newPopularity(n int, offset, exponent float64) popularity {
	p := make(popularity, n)
	total := 0.0
	for k := range p {
		total += math.Pow(float64(k)+offset, -exponent)
		p[k] = total
	}
	for k := range p {
		p[k] /= total
	}
	p[n-1] = 1
	return p
}

// place returns the place in which u, from [0, 1), lies.
func (p popularity) place(u float64) int {
	low, high := 0, len(p)-1
	for low < high {
		if mid := int(uint(low+high) >> 1); u < p[mid] {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
