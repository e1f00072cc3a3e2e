package rpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// Identity says what a process belongs to. Client and server must be equal in all of it.
type Identity struct {
	// Job is the job's name, Plan the hash of its plan, Layout that of its parameters ([param.Layout.Hash]).
	Job, Plan, Layout string
	// Shards is how many shards there are.
	Shards int
}

const (
	keyVersion = "monolith-version"
	keyJob     = "monolith-job"
	keyPlan    = "monolith-plan"
	keyLayout  = "monolith-layout"
	keyShards  = "monolith-shards"
)

// differs says what is not the same at who, the other side, and at me. What follows from something else that is told is
// left out.
func (i Identity) differs(me, who string, o Identity) error {
	var faults []string
	add := func(what, theirs, mine string) bool {
		if theirs != mine {
			faults = append(faults, fmt.Sprintf("%s: %s has %s, %s %s", what, me, mine, who, theirs))
		}
		return theirs != mine
	}
	if !add("the jobs have other names", strconv.Quote(o.Job), strconv.Quote(i.Job)) {
		add("the numbers of shards differ", strconv.Itoa(o.Shards), strconv.Itoa(i.Shards))
		if !add("the parameters differ (model, features, optimizer)", "layout "+o.Layout, "layout "+i.Layout) {
			add("the plans differ (source, parse, batch)", "plan "+o.Plan, "plan "+i.Plan)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("ps: %s; start all processes with the same job file and the same --set (monolith plan and train --print-config show what a process would do): %w",
		strings.Join(faults, "; "), ps.ErrMismatch)
}

// outgoing puts the identity into a call.
func (i Identity) outgoing(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, keyVersion, strconv.Itoa(wire.ProtocolVersion), keyJob, i.Job, keyPlan, i.Plan,
		keyLayout, i.Layout, keyShards, strconv.Itoa(i.Shards))
}

// check compares the identity of a call with this one, which is me's.
func (i Identity) check(ctx context.Context, me string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	if v := get(keyVersion); v != strconv.Itoa(wire.ProtocolVersion) {
		if v == "" {
			v = "none"
		}
		return fmt.Errorf("ps: the caller speaks version %s of the protocol, %s version %d; run the same release everywhere: %w",
			v, me, wire.ProtocolVersion, wire.ErrVersion)
	}
	shards, _ := strconv.Atoi(get(keyShards))
	return i.differs(me, "the caller", Identity{Job: get(keyJob), Plan: get(keyPlan), Layout: get(keyLayout), Shards: shards})
}

// intercept checks the identity of our own calls; health and reflection are for anybody.
func (o *ServerOptions) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/monolith.") {
		if err := o.Identity.check(ctx, fmt.Sprintf("shard %d", o.Shard)); err != nil {
			return nil, failed(err)
		}
	}
	if o.Shard != 0 && strings.HasPrefix(info.FullMethod, "/"+psv1.Coordinator_ServiceDesc.ServiceName+"/") {
		return nil, failed(notShard(o.Shard, 0))
	}
	return next(ctx, req)
}

// notShard says that a shard was taken for another.
func notShard(is, called int) error {
	return fmt.Errorf("ps: this is shard %d and was called as shard %d: ps.addresses are in another order on the two sides: %w", is, called, ps.ErrMismatch)
}
