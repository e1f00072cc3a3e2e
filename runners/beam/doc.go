// Package beam runs a training plan on Apache Beam.
//
// A plan, whatever its shape, becomes one splittable DoFn whose body is [pipeline.Segment.Run]: Beam hands out the splits,
// sees progress and watermarks, and never sees a row. The Beam graph is always the same:
//
//	Create(elements) ─> Reshuffle ─> segments (SDF) ─> statistics ─> Reshuffle ─> collect
//
// # Elements
//
// An element is a group of splits of one segment and owns the executor that reads them. On a runner that lives in one process the splits
// are dealt among [Options.Workers] elements as [pipeline.Segment.Run] deals them among its lanes; on a runner with several
// processes each split is an element. In deterministic mode there is one element with all splits, because the order in
// which they are read is a function of the positions of all (invariant 6).
//
// # Leases
//
// An executor lives in the process under a lease, not in a bundle: a runner runs the elements of a bundle one after the
// other, so executors that lived in bundles would starve each other. A bundle starts the executor or renews its lease,
// claims what was done since the last bundle, moves the watermark and gives the element back. A lease that is not renewed
// stops its executor: the element has moved, or the runner is gone. What an executor fails with becomes the error of the
// next bundle. A runner that takes no element back in batch mode gets a DoFn that keeps its lease to the end instead.
//
// # What is true
//
// A restriction is an account of the work, as a range of positions or, for an element of several splits, of rows. It is not
// where reading starts: the sink's [pipeline.Resumer] says that, and its fencing keeps out an executor that was thought
// dead. So a restored restriction may be older or newer than what is applied, and claims may come after their effects: each
// row counts once all the same (invariant 2). A runner may checkpoint a restriction but not cut it.
//
// # Processes
//
// Executors run in the submitting process (Prism, and [Service] with [Loopback]) or in processes that a runner starts, where this program
// is its own boot program ([Init]) or serves a [Pool]. Beam has no way from the submitting process to executors elsewhere: what a recipe
// builds brings one along ([Built].Follow, Ended and AllEnded), by which a run is drained, ends at MaxRows of all processes together, and leaves
// no executors behind a submitter that died.
//
// # Shipping
//
// A graph travels as a [Recipe]: the name of a [Builder] that every program registers, and its configuration. A worker
// builds the graph again, plans it and compares the plan's hash with that of the submitted plan ([ErrPlan]).
//
// # State of the process
//
// Beam calls DoFns that it made itself, so what bundles of one process share (recipes, running executors) is found through
// the package. Beam's embedded runner, Prism, keeps every job it has run until the process ends, about 50 KiB each, and
// leaves an empty file in the temporary directory; a program that runs thousands of jobs should use a process for each. Its
// log goes to [Options.Logger] at debug.
package beam
