package peek

import "fmt"

// Padding finds a value that fills lists up to a length. The zero value is ready; it is not for concurrent use.
type Padding struct {
	lists int64
	ends  [2]map[string]*fill // by the value at the end and at the beginning of lists
}

// fill counts the lists that have a value at one end.
type fill struct {
	lists, within int64         // within: of these, lists that have it elsewhere too
	runs          map[int]int64 // how often in a row it comes at that end
}

// maxLists is how many lists are enough to find padding.
const maxLists = 10_000

// Add takes a list of more than one value.
func (p *Padding) Add(n int, at func(i int) string) {
	if p.lists == maxLists {
		return
	}
	p.lists++
	for side := range p.ends {
		i := func(k int) int { return k }
		if side == 0 {
			i = func(k int) int { return n - 1 - k }
		}
		value, run := at(i(0)), 1
		for run < n && at(i(run)) == value {
			run++
		}
		if p.ends[side] == nil {
			p.ends[side] = map[string]*fill{}
		}
		f := p.ends[side][value]
		if f == nil {
			if len(p.ends[side]) == maxDistinct {
				continue
			}
			f = &fill{runs: map[int]int64{}}
			p.ends[side][value] = f
		}
		f.lists++
		f.runs[run]++
		for k := run; k < n; k++ {
			if at(i(k)) == value {
				f.within++
				break
			}
		}
	}
}

// Found returns the value that fills up the lists, and how many of them. It ends, or begins,
// most lists, in runs of different lengths, and hardly ever comes elsewhere.
func (p *Padding) Found() (value string, lists, of int64, ok bool) {
	const few = 10
	if p.lists < few {
		return "", 0, 0, false
	}
	for _, side := range p.ends {
		for v, f := range side {
			usual := int64(0)
			for _, n := range f.runs {
				usual = max(usual, n)
			}
			if 2*f.lists > p.lists && 10*(f.lists-usual) >= f.lists && 20*f.within <= f.lists {
				return v, f.lists, p.lists, true
			}
		}
	}
	return "", 0, 0, false
}

// note says that lists are filled up, as a comment.
func (p *Padding) note() string {
	value, lists, of, ok := p.Found()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s fills up %d of %d lists", value, lists, of)
}

// ignore is the key of a feature that leaves out what fills up lists.
func (p *Padding) ignore() string {
	value, _, _, ok := p.Found()
	switch {
	case !ok:
		return ""
	case isNumber(value):
		return fmt.Sprintf(", ignore: [%s]", value)
	}
	return fmt.Sprintf(", ignore: [%s]", quote(value))
}

// isMinusOne reports whether -1 fills up lists.
func (p *Padding) isMinusOne() bool {
	value, _, _, ok := p.Found()
	return ok && value == "-1"
}
