// Package epochsource reads a bounded source several times, each time in another order: epochs and shuffling.
//
//	           ┌── window of ShuffleRows rows ──┐
//	source  ─> │ a b c d e f                    │ g h i j k l │ ...      each epoch again
//	           └──────────── permuted ──────────┘
//	elements ─> d a f c b e │ k g l ... │ one never spans two epochs
//
// The order of a window is a function of the seed, the epoch, the split's name and the window's place alone, so a run
// that stops anywhere goes on exactly where it was (invariant 6). A position is [pipeline.AtEpoch](epoch, number of the
// row in the epoch's order); the rows of an epoch are counted while they are read, so its end shows as the next epoch's
// beginning.
//
// Rows that the bad row policy drops are reported whenever they are read: once an epoch, and once more when a run is
// resumed behind them.
package epochsource
