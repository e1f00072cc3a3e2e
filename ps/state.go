package ps

import (
	"strings"

	"github.com/monolith-go/monolith/ps/snapshot"
)

// TraceState is the key of the worker state that holds the trace: what the updates applied so far predicted in
// [param.Update].Trace, the last examples, the oldest first, in the order of their commits, as score.Ring keeps them. It is
// as old as the rows, to the update, wherever worker state goes: snapshots, digests, coordinator.Cluster.State. Setting it replaces the
// trace and nil empties it; an empty trace is no entry.
const TraceState = "trace"

// TotalsState is the key of the worker state that holds the totals of the traces of all updates applied ([param.Update].Trace), as score.Totals encodes
// them: as old as the rows, like the trace, and left out of digests, which have that. Of batches that a trace cuts short (score.AppendTail) they have what it keeps. Setting it replaces the totals and nil empties them.
const TotalsState = snapshot.TotalsState

// ClockState is the key of the worker state that holds the event time of the updates applied, where a [param.Retention] goes by it: as old as the
// rows, like the trace.
const ClockState = "clock"

// SourceState is the key of the worker state that a source keeps of one of its splits. It is in snapshots like other
// state, but not in digests.
func SourceState(source, split string) string { return snapshot.SourceState + source + "/" + split }

// StageState is the key of the worker state that a stage with state keeps of a split of a source. It is its owner's and left
// out of digests like [SourceState]: when it was taken depends on the moment.
func StageState(stage, source, split string) string {
	return SourceState(plain.Replace(stage)+stageOf+plain.Replace(source), split)
}

// stageOf is what a name without spaces does not have.
const stageOf = " of "

var (
	plain = strings.NewReplacer("%", "%25", "/", "%2F", " ", "%20")
	named = strings.NewReplacer("%25", "%", "%2F", "/", "%20", " ")
)

// SplitOfState returns the split whose owner the state under a key is, that of its source or of a stage; ok is false where it is nobody's.
func SplitOfState(key string) (id SplitID, ok bool) {
	rest, ok := strings.CutPrefix(key, snapshot.SourceState)
	if !ok {
		return SplitID{}, false
	}
	if id.Source, id.Split, ok = strings.Cut(rest, "/"); !ok {
		return SplitID{}, false
	}
	if _, source, stage := strings.Cut(id.Source, stageOf); stage {
		id.Source = named.Replace(source)
	}
	return id, true
}
