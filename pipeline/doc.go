// Package pipeline is the contract between the parts of Monolith: what flows ([Block], [Batch]), where it comes from
// ([Source], [Reader]), what is done to it ([Stage], [Processor]) and where it ends ([Sink], [Writer]); how such parts
// are joined into a [Graph], checked and cut into a [Plan], and run by a segment executor ([Segment]).
//
// Describing, planning and running are three things. A Source, Stage or Sink is a description: building one opens
// nothing. [Graph.Plan] checks the whole description and reports every fault at once, each with the file:line of the
// call that made it. Only running a plan opens readers, processors and writers.
//
// The package imports no implementation and speaks to no network. Implementations live in sources, transforms and
// sinks, never import each other, and are wired together by the job package, a command or a program of the user's.
package pipeline
