package rpc

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/monolith-go/monolith/internal/secure"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

const (
	// coordinatorLease is for how long after its last call a coordinator keeps others away; one that lives calls every
	// 200 ms.
	coordinatorLease = time.Second
	// sayEvery bounds how often refused calls are logged.
	sayEvery = 10 * time.Second
)

// admission lets the calls of this job's processes in, by their headers alone. Its methods may overlap.
type admission struct {
	o   *ServerOptions
	now func() time.Time

	mu sync.Mutex
	// coordinator is the shard 0 that was last seen, process its name for itself, lastSeen when it was seen, term the highest of any.
	coordinator, process string
	term                 uint64
	lastSeen             time.Time
	logged               time.Time // when a refusal was logged last
}

// admit is [wire.ServerConfig].Admit: reflection is for anybody who is let in.
func (a *admission) admit(may secure.Right, method string, md metadata.MD) error {
	if !strings.HasPrefix(method, "/monolith.") || strings.HasPrefix(method, "/monolith.ps.v1.Stream/") {
		return nil // a stream identifies itself in its hello
	}
	me := fmt.Sprintf("shard %d", a.o.Shard)
	if err := version(md, me); err != nil {
		return failed(err)
	}
	if need := needs(method); may < need {
		return failed(notGranted(method[strings.LastIndexByte(method, '/')+1:], me, need, may))
	}
	id := of(md)
	if err := a.same(me, "the caller", id); err != nil {
		return failed(err)
	}
	if id.Role == ps.Reader && !mayRead(method) {
		return failed(fmt.Errorf("ps: a reader does not call %s of %s: %w", method[strings.LastIndexByte(method, '/')+1:], me, ps.ErrReadOnly))
	}
	switch {
	case strings.HasPrefix(method, "/"+psv1.Coordinator_ServiceDesc.ServiceName+"/"):
		if a.o.Shard != 0 && (a.o.Witness == nil || method != psv1.Coordinator_Promote_FullMethodName) {
			return failed(notShard(a.o.Shard, 0))
		}
	case mayRead(method), method == psv1.Shard_Probe_FullMethodName: // calls to a shard that are not the coordinator's alone
	case method == psv1.Standby_Follow_FullMethodName: // the other process of the shard
	case a.o.Shard == 0 && method != psv1.Standby_Lease_FullMethodName: // by which the witness keeps its pair
		return failed(fmt.Errorf("ps: shard 0 coordinates itself: %w", ps.ErrMismatch))
	default:
		return failed(a.coordinated(me, md))
	}
	return nil
}

// needs is what a caller must be granted for a call.
func needs(method string) secure.Right {
	switch {
	case mayRead(method):
		return secure.Read
	case method == psv1.Coordinator_Scale_FullMethodName, method == psv1.Coordinator_Promote_FullMethodName:
		return secure.Coordinate
	case strings.HasPrefix(method, "/"+psv1.Coordinator_ServiceDesc.ServiceName+"/"), method == psv1.Shard_Probe_FullMethodName:
		return secure.Train
	}
	return secure.Coordinate
}

// notGranted says that a caller may not do what it asks for.
func notGranted(what, me string, need, may secure.Right) error {
	return fmt.Errorf("ps: %s of %s needs the right to %v, and the caller's token or certificate gives the right to %v (ps.allow of the shards): %w", what, me, need, may, wire.ErrNotAdmitted)
}

// mayRead reports whether a call changes nothing, so that readers may make it.
func mayRead(method string) bool {
	switch method {
	case psv1.Coordinator_Info_FullMethodName, psv1.Coordinator_GetState_FullMethodName, psv1.Coordinator_Progress_FullMethodName,
		psv1.Coordinator_Stats_FullMethodName, psv1.Coordinator_Digest_FullMethodName, psv1.Shard_Stats_FullMethodName, psv1.Shard_Entries_FullMethodName, psv1.Shard_Newest_FullMethodName,
		psv1.Shard_Tally_FullMethodName, psv1.Shard_Changes_FullMethodName:
		return true
	}
	return false
}

// same compares an identity with the server's own.
func (a *admission) same(me, who string, theirs Identity) error {
	err := a.o.Identity.differs(me, who, theirs, a.o.Config.Authenticates())
	if err == nil {
		return nil
	}
	a.mu.Lock()
	say := a.now().Sub(a.logged) >= sayEvery
	if say {
		a.logged = a.now()
	}
	a.mu.Unlock()
	if say {
		a.o.Logger.Warn("a caller of another job was refused", "err", a.o.Identity.differs(me, fmt.Sprintf("%.200s", who), theirs, true))
	}
	return err
}

// coordinated reports whether a caller coordinates this shard. There is one shard 0 for a folder of snapshots; two of them
// would give the shard their states in turns. Errors: [ps.ErrMismatch] for one with another folder, [ps.ErrNotReady] while
// another one is there.
func (a *admission) coordinated(me string, md metadata.MD) error {
	id, process, dir := first(md, keyCoordinator), first(md, keyProcess), first(md, keyDir)
	if id == "" {
		return fmt.Errorf("ps: the caller does not say that it is shard 0, which alone may ask %s for this: %w", me, ps.ErrMismatch)
	}
	if mine := filepath.Clean(a.o.Dir); dir != mine {
		return fmt.Errorf("ps: the caller, shard 0 in %.200s, keeps its snapshots in %.500s, %s in %s: start all shards with the same dir, and one shard 0 only: %w",
			process, dir, me, mine, ps.ErrMismatch)
	}
	term, err := strconv.ParseUint(first(md, keyTerm), 16, 64)
	if err != nil {
		return fmt.Errorf("ps: the caller, shard 0 in %.200s, gives no term: %w", process, ps.ErrMismatch)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if term < a.term {
		return fmt.Errorf("ps: the caller, shard 0 in %.200s, coordinates in term %d, and %s is coordinated in term %d: the other process of shard 0 has taken over: %w",
			process, term, me, a.term, ps.ErrNotReady)
	}
	if term > a.term { // nobody coordinates in a term before: shard 0 takes over when the lease of that is over
		a.term, a.lastSeen = term, time.Time{}
	}
	if ago := now.Sub(a.lastSeen); a.coordinator != "" && a.coordinator != id && ago < coordinatorLease {
		return fmt.Errorf("ps: %s is coordinated by the shard 0 in %s, which called %v ago; end one of the two: %w",
			me, a.process, ago.Round(time.Millisecond), ps.ErrNotReady)
	}
	if a.coordinator != id && a.coordinator != "" {
		a.o.Logger.Info("another shard 0 coordinates this shard", "process", process, "before", a.process)
	}
	a.coordinator, a.process, a.lastSeen = id, fmt.Sprintf("%.200s", process), now
	return nil
}
