package table

import (
	"math"

	"github.com/monolith-go/monolith/model/param"
)

// editRow makes of the row of an update's key i what an update says that does not train.
func (t *Mem) editRow(u *Update, i int, row []float32, m *meta) {
	width := t.widths[u.Op]
	values := u.Grads[i*width:][:width]
	switch u.Op {
	case param.Assign:
		t.pack(row, values)
	case param.AssignAdd:
		t.add(row, values)
	case param.AssignState:
		t.pack(row, values[:t.dim])
		copy(row[t.packed:], values[t.dim:])
	case param.Reinitialize:
		t.initialize(row, u.Keys[i])
		*m = meta{}
	}
	m.seen(u, i)
}

// add adds values to the weights of a row.
func (t *Mem) add(row, values []float32) {
	w := row[:t.packed]
	if t.halves {
		w = t.lanes[0].weights
		t.unpack(w, row)
	}
	for i, v := range values {
		w[i] = min(max(w[i]+v, -math.MaxFloat32), math.MaxFloat32) // no snapshot takes an infinite one
	}
	t.pack(row, w)
}
