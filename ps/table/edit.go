package table

import (
	"math"

	"github.com/monolith-go/monolith/model/param"
)

// edit is Apply of an update that says what rows are in place of training them. Edits are few: it takes the keys one by one.
func (t *Mem) edit(u Update) {
	var ids [1]uint32
	for i, k := range u.Keys {
		ids[0] = t.findOrCreate(Hash(k), k)
		t.save(u.Keys[i:i+1], ids[:])
		row, m := t.slabs.row(ids[0]), t.slabs.metaOf(ids[0])
		switch u.Op {
		case param.Assign:
			t.pack(row, u.Grads[i*t.dim:][:t.dim])
		case param.AssignAdd:
			t.add(row, u.Grads[i*t.dim:][:t.dim])
		case param.Reinitialize:
			t.initialize(row, k)
			*m = meta{}
		}
		m.time = max(m.time, u.Time)
		m.count += uint64(u.Counts[i])
	}
}

// add adds values to the weights of a row.
func (t *Mem) add(row, values []float32) {
	w := row[:t.packed]
	if t.halves {
		w = t.weights
		t.unpack(w, row)
	}
	for i, v := range values {
		w[i] = min(max(w[i]+v, -math.MaxFloat32), math.MaxFloat32) // no snapshot takes an infinite one
	}
	t.pack(row, w)
}
