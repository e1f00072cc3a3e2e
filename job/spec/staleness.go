package spec

import "runtime"

// Staleness is the largest number of batches of this process whose updates a batch's weights may lack: those that other
// workers are at, and, where batches are looked up ahead, max_staleness more. A worker's own are never lacking.
func (t *Train) Staleness() int64 {
	others := int64(t.Workers) - 1
	if others > 0 && t.Prefetch.Ahead() {
		return others + t.MaxStaleness
	}
	return others
}

// Ahead reports whether batches are looked up before those in front of them are pushed.
func (p Prefetch) Ahead() bool { return p.Lookup > 0 || p.Push > 0 }

// FewBatches is how many batches a training run should have for its staleness to be made up for. With rules whose steps
// shrink with the root of the number of steps, what stale gradients overshoot by does so too: the time it takes grows with
// the square. The factor is measured: on 500,000 rows of 39 ids, fm, 122 batches with 2 others under way cost .009 of AUC and
// 976 with 5 cost .012; in MovieLens 1,563 with 6 cost .003. 122 with 1 and 976 with 2 cost nothing.
func FewBatches(stale int64) int64 {
	if stale <= 1 {
		return 0
	}
	return 50 * stale * stale
}

// leadExamples is how many examples one worker trains on alone before others begin. The first steps of a row are its
// largest: Adagrad's and FTRL's shrink as their accumulators grow. Of several workers at once each takes those steps in
// full, with weights that lack the others'. Layers take theirs by batches: leadBatches is how many of those it is at least.
// docs/quality.md has the measurements.
const (
	leadExamples = 65_536
	leadBatches  = 50
)

// InTurn reports whether the workers of this process begin one after the other, each once enough examples were trained on for so
// many under way.
func (c *Config) InTurn() bool { return c.Train.Workers > 1 && c.Runner == RunnerLocal }

// ExamplesBefore is how many examples the workers of this process train on before one more begins beside so many others.
func (c *Config) ExamplesBefore(others int64) int64 {
	if others < 1 {
		return 0
	}
	return max(leadExamples, max(leadBatches, FewBatches(others))*int64(c.Train.Batch))
}

// StepThreads is how many threads the model of a worker uses in this process, and its rows in shards that are in it.
func (c *Config) StepThreads() int {
	switch {
	case c.Train.Threads > 0:
		return c.Train.Threads
	case c.Runner != RunnerLocal:
		return 1
	}
	return max(runtime.GOMAXPROCS(0)/c.Train.Workers, 1)
}
