// Package epochsource reads a bounded source several times, each time in another order: epochs and shuffling.
//
//	           ┌── window of ShuffleRows rows ──┐
//	source  ─> │ a b c d e f                    │ g h i j k l │ ...      each epoch again
//	           └──────────── permuted ──────────┘
//	elements ─> d a f c b e │ k g l ... │ one never spans two epochs
//
// The order of a window is a function of the seed, the epoch, what the split holds ([pipeline.Split].Identity, or its name)
// and the window's place alone, so a run that stops anywhere continues exactly where it was (invariant 6), and a copy of the
// data is read in the same order.
//
// A position is [position.AtEpoch](epoch, place). Where rows are read in another order than the source's, the place is the
// number of the row in the epoch's order; such rows are counted while they are read, so the end of the epoch shows as the
// next epoch's beginning. In the order of the source it is the source's own position: the first epoch then has the
// positions that the source has without epochs, what is appended to a split is read on, and an epoch ends where the split
// does, with an empty element [end, next epoch) where another follows.
//
// Rows that the bad row policy drops are reported whenever they are read: once an epoch, and once more when a run is
// resumed after them.
package epochsource
