package batch

import (
	"sort"

	"github.com/monolith-go/monolith/pipeline"
)

// divideAll divides pieces, which join without a gap, at ascending positions, and returns those that follow the last piece.
// With epochs, what ends with an epoch is distinguished. On an error it has released everything.
func divideAll(in []piece, boundaries []pipeline.Position, epochs bool) (out []piece, left []pipeline.Position, err error) {
	for i, p := range in {
		for len(boundaries) > 0 && boundaries[0] <= p.batch.Origin().From {
			boundaries = boundaries[1:] // a batch begins there anyway
		}
		for len(boundaries) > 0 && boundaries[0] < p.batch.Origin().To {
			front, back, err := divide(p.batch, boundaries[0])
			p.batch.Release()
			if err != nil {
				release(out)
				release(in[i+1:])
				return nil, nil, err
			}
			_, place := boundaries[0].Epoch()
			out = append(out, piece{batch: front, atBoundary: true, lastOfEpoch: epochs && place == 0})
			p.batch, boundaries = back, boundaries[1:]
		}
		p.atBoundary = len(boundaries) > 0 && boundaries[0] == p.batch.Origin().To
		out = append(out, p)
	}
	return out, boundaries, nil
}

// divide returns what lies before a position within a batch and what follows it; b stays whole and its owner's. The
// records of a row end with its position, so the row belongs in front if that is not after the boundary. Where rows were
// dropped the boundary is between two of them, and ends a range all the same: a shard has it as its position.
func divide(b *pipeline.Batch, at pipeline.Position) (front, back *pipeline.Batch, err error) {
	pos, o, rec := b.Positions(), b.Origin(), b.Record()
	row := int64(sort.Search(len(pos), func(i int) bool { return pipeline.Position(pos[i]) > at }))
	first, second := o, o
	first.To, second.From = at, at
	r := rec.NewSlice(0, row)
	if front, err = pipeline.NewBatch(r, first); err != nil {
		r.Release()
		return nil, nil, err
	}
	r = rec.NewSlice(row, rec.NumRows())
	if back, err = pipeline.NewBatch(r, second); err != nil {
		r.Release()
		front.Release()
		return nil, nil, err
	}
	return front, back, nil
}
