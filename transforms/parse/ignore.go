package parse

import "slices"

// ignored are the values of a feature that stand for nothing ([Feature].Ignore), in each form that a value may have. The zero value
// ignores nothing.
type ignored struct {
	texts  []string
	ints   []int64
	floats []float32
	nan    bool
}

// newIgnored reads the words of an option. A word that is a number ignores the number and the text.
func newIgnored(words []string) ignored {
	var g ignored
	for _, w := range words {
		g.texts = append(g.texts, w)
		if x, is, fits := autoInt([]byte(w)); is && fits {
			g.ints = append(g.ints, x)
		}
		if x, ok := parseFloat([]byte(w)); ok && x != x {
			g.nan = true
		} else if ok {
			g.floats = append(g.floats, x)
		}
	}
	return g
}

func (g *ignored) any() bool { return len(g.texts) > 0 }

func (g *ignored) int(x int64) bool { return slices.Contains(g.ints, x) }

func (g *ignored) float(x float32) bool {
	return g.nan && x != x || slices.Contains(g.floats, x)
}

// ignores reports whether a piece of text stands for nothing: it is one of the words, or the same number as one.
func (f *feature) ignores(t []byte) bool {
	g := &f.ignore
	if slices.Contains(g.texts, string(t)) {
		return true
	}
	switch {
	case f.typ == String:
		return false
	case f.kind == Dense || f.typ == Float:
		x, ok := parseNumber(t)
		return ok && g.float(x)
	}
	x, is, fits := autoInt(cutPoint(t))
	return is && fits && g.int(x)
}

// drop takes the values out of v that stand for nothing. Texts that are cut into pieces first stay.
func (f *feature) drop(v *values) {
	g := &f.ignore
	switch v.kind {
	case ints:
		n, unsigned := 0, v.unsigned
		v.unsigned = v.unsigned[:0]
		for i, x := range v.ints {
			high := len(unsigned) > 0 && unsigned[0] == i
			if high {
				unsigned = unsigned[1:]
			}
			if numbers := f.kind == Dense || f.typ == Float; !numbers && g.int(x) || numbers && !high && g.float(float32(x)) {
				continue
			}
			if high {
				v.unsigned = append(v.unsigned, n)
			}
			v.ints[n] = x
			n++
		}
		v.ints = v.ints[:n]
	case floats:
		n := 0
		for i, x := range v.floats {
			if g.float(x) {
				continue
			}
			if v.floats[n] = x; len(v.wholes) > 0 {
				v.wholes[n] = v.wholes[i]
			}
			n++
		}
		v.floats, v.wholes = v.floats[:n], v.wholes[:min(n, len(v.wholes))]
	case pairs:
		n := 0
		for i, x := range v.ints {
			if f.kind == Dense && g.float(v.floats[i]) || f.kind != Dense && g.int(x) {
				continue
			}
			v.ints[n], v.floats[n] = x, v.floats[i]
			n++
		}
		v.ints, v.floats = v.ints[:n], v.floats[:n]
	case texts:
		if f.re == nil && f.split == nil {
			v.texts = slices.DeleteFunc(v.texts, f.ignores)
		}
	}
	if v.len() == 0 {
		v.kind = none
	}
}
