package beam

import "errors"

// Sentinel errors; callers test with errors.Is.
var (
	// ErrPlan: the graph that a worker built is not the one that was submitted, because the worker runs another version of
	// the program or another job. Returned by [Run]; start the same program everywhere.
	ErrPlan = errors.New("the worker's plan is not the submitted one")
	// ErrRecipe: a recipe names a builder that the program has not registered. Returned by [Run]; call [Register] in main.
	ErrRecipe = errors.New("unknown recipe")
	// ErrInit: [Run] was called without [Init].
	ErrInit = errors.New("beam is not initialised")
	// ErrLease: an executor was stopped because no bundle renewed its lease. It is the cause that the executor's context
	// ends with; [Run] does not return it, since the next bundle of the element starts another executor.
	ErrLease = errors.New("lease not renewed")
	// ErrCancelled: the job was cancelled at its runner, by somebody else. Returned by [Run]; what was trained is kept.
	ErrCancelled = errors.New("the job was cancelled")
	// errEnded: a bundle came after the end of its run.
	errEnded = errors.New("the run has ended")
)
