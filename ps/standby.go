package ps

import (
	"context"
	"strings"
	"time"
)

// A shard may have two processes, a pair: its first one, of ps.addresses, and its standby, of ps.standby. One of them is in charge and
// does what a shard does; the other follows its log. Which it is follows from the shard's term, which is counted up at each take-over
// ([FirstInCharge]).

// FirstInCharge reports whether in a term the first process of a shard's pair is in charge, and not the standby.
func FirstInCharge(term uint64) bool { return term%2 == 0 }

// AddrSep is what no address has in it: in lists of shards it stands between those of a pair.
const AddrSep = "|"

// JoinAddr is how a shard stands in a list of addresses: by that of its process, or, where standby is not "", by those of both of its pair, which no
// list names otherwise.
func JoinAddr(first, standby string) string {
	if standby == "" {
		return first
	}
	return first + AddrSep + standby
}

// SplitAddr is the inverse of [JoinAddr].
func SplitAddr(addr string) (first, standby string) {
	first, standby, _ = strings.Cut(addr, AddrSep)
	return first, standby
}

// Witness is the shard whose process decides which of the two processes of shard 0 is in charge, where shard 0 has a standby: the first one behind it that has none, so that it need not be
// decided who decides. 0: there is no such shard. Addresses are as in [JoinAddr].
func Witness(addrs []string) int {
	for i, addr := range addrs {
		if _, standby := SplitAddr(addr); i > 0 && standby == "" {
			return i
		}
	}
	return 0
}

// LeaseCall is what the coordinator says to a process of a pair, many times within the length of a lease.
type LeaseCall struct {
	// Coordinator is another one after every start of shard 0.
	Coordinator uint64
	// Call is above that of every call before which the coordinator has made to the shard's two processes. A process refuses a call that was overtaken
	// by another of the same coordinator.
	Call uint64
	// Term is the shard's.
	Term uint64
	// Process and Stamp are those of the last [Charge] that the coordinator has an answer with, 0 for none. They lengthen the lease of the
	// one in charge: it lasts for so long from when it gave that answer.
	Process, Stamp uint64
	// Lease is how long it lasts, as the coordinator reckons. A process that reckons with another one refuses the call: the coordinator would take a lease for over
	// that is not. 0 is not compared.
	Lease time.Duration
}

// Charge is how a process of a pair answers to [LeaseCall].
type Charge struct {
	// Process is another one after every start, Stamp when by its own clock it gave the answer.
	Process, Stamp uint64
	// InCharge says that it is in charge in the term, though without a lease it refuses all work.
	InCharge bool
	// Blank says that it has no state: it has not been given one yet, or has lost what it had. Of the one in charge.
	Blank bool
	// Synced says that the standby has all that was acknowledged, and will have all that is: until the coordinator has an answer that says
	// otherwise. Of the one in charge.
	Synced bool
	// Whole says that a standby holds a state that it was brought up to date with once. Of the standby.
	Whole bool
	// Lag is how many records of the log the standby has not received, of all shards of the process; -1: it is not connected. Of the one in
	// charge.
	Lag int64
}

// StandbyHook is notified of a pair.
type StandbyHook interface {
	// Standby reports, a few times a second, the term of a shard that has a standby, whether the one in charge answers, whether the other may
	// take over, and how many records it lacks, -1 when that is not known.
	Standby(shard int, term uint64, answers, synced bool, lag int64)
	// StandbyGone reports that the pair of a shard is not looked after any more: the shard was removed, or shard 0 ends.
	StandbyGone(shard int)
}

// Standby calls the hooks that implement [StandbyHook].
func (h *Hooks) Standby(shard int, term uint64, answers, synced bool, lag int64) {
	if h == nil {
		return
	}
	for _, x := range h.standby {
		x.Standby(shard, term, answers, synced, lag)
	}
}

// StandbyGone calls the hooks that implement [StandbyHook].
func (h *Hooks) StandbyGone(shard int) {
	if h == nil {
		return
	}
	for _, x := range h.standby {
		x.StandbyGone(shard)
	}
}

// Promoter is a [Peer] whose shard has a standby.
type Promoter interface {
	// Promote lets the standby take over, and returns once it is in charge. Errors: [ErrNotReady] with the reason when it lacks something
	// that was acknowledged, or that is not known; those of reaching it, after which it may have taken over or not: the shard continues either way.
	Promote(ctx context.Context) error
}
