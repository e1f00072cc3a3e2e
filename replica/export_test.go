package replica

import (
	"context"

	"github.com/monolith-go/monolith/ps"
)

// Passes are those of a replica over one shard, one after the other.
type Passes struct{ f *following }

// Passes begins to follow one shard, without passes of its own.
func (r *Replica) Passes(from Source) *Passes {
	r.coming = make([]*part, 1)
	return &Passes{&following{r: r, from: from, place: ps.NewPlacement(r.layout, 1), c: ps.NewReplica(r.o.Name, from, 1)}}
}

// Next takes what has changed since the pass before.
func (p *Passes) Next(ctx context.Context) error {
	_, _, err := p.f.pass(ctx, 0)
	return err
}
