package batch

import (
	"sort"

	"github.com/monolith-go/monolith/pipeline"
)

// atCuts cuts pieces, which join without a gap, at ascending positions, and returns those that follow the last piece.
// With epochs, what ends with an epoch is distinguished. On an error it has released everything.
func atCuts(in []piece, cuts []pipeline.Position, epochs bool) (out []piece, left []pipeline.Position, err error) {
	for i, p := range in {
		for len(cuts) > 0 && cuts[0] <= p.batch.Origin().From {
			cuts = cuts[1:] // a batch begins there anyway
		}
		for len(cuts) > 0 && cuts[0] < p.batch.Origin().To {
			front, back, err := divide(p.batch, cuts[0])
			p.batch.Release()
			if err != nil {
				release(out)
				release(in[i+1:])
				return nil, nil, err
			}
			_, place := cuts[0].Epoch()
			out = append(out, piece{batch: front, cut: true, lastOfEpoch: epochs && place == 0})
			p.batch, cuts = back, cuts[1:]
		}
		p.cut = len(cuts) > 0 && cuts[0] == p.batch.Origin().To
		out = append(out, p)
	}
	return out, cuts, nil
}

// divide returns what lies before a position within a batch and what follows it; b stays whole and its owner's. The
// records of a row end with its position, so the row belongs in front if that is not after the cut. Where rows were
// dropped the cut is between two of them, and becomes a border of the ranges all the same: a shard has it as its position.
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
