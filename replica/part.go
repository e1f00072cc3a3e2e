package replica

import (
	"fmt"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// part is what a replica has of one shard, or of a snapshot.
type part struct {
	tables []*table.Mem
	dims   []int
	// dense are the shard's tensors, one after the other, version names them.
	dense      []float32
	version    uint64
	generation uint64
	asOf       time.Time
	progress   map[ps.SplitID]ps.Progress
	counts     []uint32 // zeros
}

func newPart(l *param.Layout) *part {
	p := &part{}
	for _, t := range l.Tables {
		p.tables, p.dims = append(p.tables, table.New(t, l.Seed, nil)), append(p.dims, t.Dim())
	}
	return p
}

// reserve makes room for the rows of answers, of which nothing can fail then. Errors: [ps.ErrFull].
func (p *part) reserve(changes []*ps.Changes) error {
	rows := make([]int, len(p.tables))
	for _, c := range changes {
		rows[c.Table] += len(c.Rows.Keys)
	}
	for t, n := range rows {
		if err := p.tables[t].Reserve(n); err != nil {
			return err
		}
	}
	return nil
}

// deal does what an answer says, for which there is room.
func (p *part) deal(c *ps.Changes) {
	p.tables[c.Table].Remove(c.Removed)
	if n := len(c.Rows.Keys); len(p.counts) < n {
		p.counts = make([]uint32, n)
	}
	p.tables[c.Table].Apply(table.Update{Op: param.Assign, Keys: c.Rows.Keys, Counts: p.counts[:len(c.Rows.Keys)], Grads: c.Rows.Weights})
}

// check refuses an answer that does not fit: it comes from elsewhere.
func (p *part) check(c *ps.Changes, denseLen int) error {
	switch {
	case c.Table < 0 || c.Table >= len(p.tables):
		return fmt.Errorf("replica: changes of table %d of %d: %w", c.Table, len(p.tables), ps.ErrMismatch)
	case len(c.Rows.Weights) != len(c.Rows.Keys)*p.dims[c.Table]:
		return fmt.Errorf("replica: %d weights for %d rows of %d: %w", len(c.Rows.Weights), len(c.Rows.Keys), p.dims[c.Table], ps.ErrMismatch)
	case c.Whole && c.At == nil:
		return fmt.Errorf("replica: the shard gives changes that are no cut; start it again with this version of monolith: %w", ps.ErrMismatch)
	case c.At != nil && len(c.At.Dense) != denseLen && (c.All || len(c.At.Dense) > 0):
		return fmt.Errorf("replica: %d dense weights of %d: %w", len(c.At.Dense), denseLen, ps.ErrMismatch)
	}
	return nil
}

// close gives the memory of a part back; nil has none.
func (p *part) close() {
	if p == nil {
		return
	}
	for _, t := range p.tables {
		t.Close()
	}
}
