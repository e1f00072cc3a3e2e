package exchange

import (
	"container/heap"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
)

// merger merges sorted lists of rows: the rows in memory and runs.
type merger struct {
	x    *Exchange
	rank []int32
	all  []*head // a heap by the lists' next rows
}

// head is a sorted list of rows at its next row.
type head struct {
	// A list in memory: rows of held, in order. place is that of the next row.
	held    []held
	columns []keys
	rows    []row
	place   int
	// A run: the streams of the rows of the current batch.
	run     *runReader
	streams []int32

	// The next row: rec owns a reference when it is a run's.
	rec    arrow.RecordBatch
	keys   keys
	at     int
	stream int32
}

// addHeld adds rows in memory, which stay where they are.
func (m *merger) addHeld(batches []held) {
	h := &head{held: batches, place: -1}
	h.rows, h.columns = m.x.sorted(batches, m.rank)
	if err := h.step(m.x); err == nil {
		m.all = append(m.all, h)
	}
}

// addRun adds a run, which has rows.
func (m *merger) addRun(r *run) error {
	h := &head{run: r.read(m.x.opts.Allocator)}
	if err := h.fill(m.x); err != nil {
		return err
	}
	m.all = append(m.all, h)
	return nil
}

func (m *merger) init() { heap.Init(m) }

// skip passes over a row; there is one.
func (m *merger) skip() error {
	switch err := m.all[0].step(m.x); {
	case errors.Is(err, io.EOF):
		heap.Pop(m)
	case err != nil:
		return err
	default:
		heap.Fix(m, 0)
	}
	return nil
}

// take returns the next rows and the record batches that they lie in, of which the caller owns a reference each: least of
// them, and more as long as the key stays the same, up to most. None: that was all. What it returns beside an error is to be
// released too.
func (m *merger) take(least, most int) (batches []arrow.RecordBatch, rows []row, err error) {
	place := map[arrow.RecordBatch]int32{}
	for len(m.all) > 0 {
		h := m.all[0]
		if n := len(rows); n >= least {
			last := rows[n-1]
			k := m.x.keysOf(batches[last.batch])
			if n >= most || compareKeys(&k, int(last.at), &h.keys, h.at) != 0 {
				break
			}
		}
		b, ok := place[h.rec]
		if !ok {
			b = int32(len(batches))
			place[h.rec] = b
			h.rec.Retain()
			batches = append(batches, h.rec)
		}
		rows = append(rows, row{b, int32(h.at), h.stream})
		if err := m.skip(); err != nil {
			return batches, nil, err
		}
	}
	return batches, rows, nil
}

func (m *merger) close() {
	for _, h := range m.all {
		if h.run != nil && h.rec != nil {
			h.rec.Release()
		}
	}
	m.all = nil
}

// fill reads the next batch of a run.
func (h *head) fill(x *Exchange) error {
	h.rec = nil
	rec, streams, err := h.run.next()
	if err != nil {
		return err
	}
	h.rec, h.streams, h.at, h.keys, h.stream = rec, streams, 0, x.keysOf(rec), streams[0]
	return nil
}

// step goes to the next row; io.EOF: there is none.
func (h *head) step(x *Exchange) error {
	if h.run == nil {
		if h.place++; h.place == len(h.rows) {
			return io.EOF
		}
		at := h.rows[h.place]
		h.rec, h.keys, h.at, h.stream = h.held[at.batch].rec, h.columns[at.batch], int(at.at), at.stream
		return nil
	}
	if h.at++; h.at == len(h.streams) {
		h.rec.Release()
		return h.fill(x)
	}
	h.stream = h.streams[h.at]
	return nil
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (m *merger) Len() int { return len(m.all) }

// Less implements heap.Interface: by key, stream and position.
func (m *merger) Less(i, j int) bool {
	a, b := m.all[i], m.all[j]
	if c := compareKeys(&a.keys, a.at, &b.keys, b.at); c != 0 {
		return c < 0
	}
	if x, y := m.rank[a.stream], m.rank[b.stream]; x != y {
		return x < y
	}
	return a.keys.positions[a.at] < b.keys.positions[b.at]
}

// Swap implements heap.Interface.
func (m *merger) Swap(i, j int) { m.all[i], m.all[j] = m.all[j], m.all[i] }

// Push implements heap.Interface.
func (m *merger) Push(v any) { m.all = append(m.all, v.(*head)) }

// Pop implements heap.Interface.
func (m *merger) Pop() any {
	last := m.all[len(m.all)-1]
	m.all = m.all[:len(m.all)-1]
	return last
}
