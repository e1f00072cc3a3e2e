package table

import "fmt"

// LookupState implements [Table]. It looks a group of keys up and then finds each once more, when its line and row are in the
// cache: who wants no state pays nothing for those who do.
func (t *Mem) LookupState(keys []int64, dst, state []float32) (found int) {
	if len(state) != len(keys)*t.stateDim {
		panic(fmt.Sprintf("table: %d values of state for %d keys of %d", len(state), len(keys), t.stateDim))
	}
	for len(keys) > 0 {
		n := min(group, len(keys))
		found += t.Lookup(keys[:n], dst[:n*t.dim])
		for i, k := range keys[:n] {
			out := state[i*t.stateDim:][:t.stateDim]
			if id, ok := t.index.find(Hash(k), k); ok {
				copy(out, t.slabs.row(id)[t.packed:])
				continue
			}
			w := dst[i*t.dim:][:t.dim]
			for j := range t.segs {
				s := &t.segs[j]
				s.rule.Init(w[s.w:s.w+s.wn], out[s.s:s.s+s.sn])
			}
		}
		keys, dst, state = keys[n:], dst[n*t.dim:], state[n*t.stateDim:]
	}
	return found
}
