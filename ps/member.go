package ps

import "fmt"

// JoinOptions say who joins a cluster's workers.
type JoinOptions struct {
	// Worker names the member. A member that joins under the name of another takes its place at once: it is the same
	// worker, started again.
	Worker string
	// Source names what it reads: members of one source share its splits, and those of another are nothing to them. Plan is
	// the hash of how; all members of a source must have one.
	Source, Plan string
	// Single makes one member work on all splits while the others wait (standby): deterministic mode needs that.
	Single bool
	// Splits are what the member sees to read: it is given no others, and what no member sees any more is forgotten.
	Splits []string
	// Report is what the member had and did before it lost its coordinator ([ErrRejoin]); zero for a new one.
	Report Report
	// Delegation is what it had delegated by then; zero: nothing.
	Delegation Delegation
}

// Delegation is work of a member that executors in other processes do, those that a Beam runner has started. They are no members:
// they push to the member's splits, and follow the member ([coordinator.Cluster.Follow]).
type Delegation struct {
	// Run names it; "" stands for none. A delegation of another name replaces it.
	Run string
	// Ending is how it is to end early.
	Ending Ending
	// Ended are the tasks, by number, whose executors have ended in order; sorted. Only the coordinator changes it, and a member
	// gives it back when it joins again.
	Ended []int
}

// Ending is how delegated work is to end early.
type Ending uint8

// The endings; one replaces those before it.
const (
	// Continue: not at all.
	Continue Ending = iota
	// Drain: what was read is trained.
	Drain
	// Stop: what was taken is trained, what was read beyond is left.
	Stop
	// Enough: nothing more is taken, but for outputs that are behind.
	Enough
)

// String names the ending.
func (e Ending) String() string {
	if names := [...]string{"continue", "drain", "stop", "enough"}; int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("ending %d", uint8(e))
}

// Task is what a member is asked to do.
type Task uint8

// The tasks.
const (
	// StandBy: wait for the next assignment, without splits.
	StandBy Task = iota
	// Work on the splits of the assignment until their end.
	Work
	// Conclude the phase: every split has been read to its end.
	Conclude
	// Finished: the job is over.
	Finished
)

// String names the task.
func (t Task) String() string { return [...]string{"stand by", "work", "conclude", "finished"}[t] }

// Assignment is what a member is to do. It is replaced, never changed.
type Assignment struct {
	// Version grows with every change.
	Version uint64
	// Generation is that of the shards' state; work of another one is void.
	Generation uint64
	// Phase counts the times that work was concluded.
	Phase uint64
	Task  Task
	// Splits are sorted.
	Splits []string
	// Leader tells the one member that acts for all: it acknowledges what a snapshot holds.
	Leader bool
	// Members is how many there are.
	Members int
	// Snapshot is the number of the newest snapshot that was taken since the cluster began, Rows the examples that shard 0
	// has applied.
	Snapshot uint64
	Rows     int64
	// Delegation is what the member delegates.
	Delegation Delegation
}

// Report is what a member says of itself.
type Report struct {
	// Generation and Phase are those of the assignment that the report is about.
	Generation, Phase uint64
	// Owned are the splits that it may still push to; what it releases others get.
	Owned []string
	// Done are splits that it has read to their end and committed.
	Done []string
	// Concluded ends the phase; Finished ends the job with it.
	Concluded, Finished bool
	// Splits, when not empty, are what the member sees to read beside what it joined with: the source has grown. Such a
	// report says nothing else.
	Splits []string
	// Delegates, when not nil, is what the member delegates from now on; its Ended is not looked at. Such a report says nothing
	// else.
	Delegates *Delegation
}
