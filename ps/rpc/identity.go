package rpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

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

// differs says what is not the same on the other side, which calls itself who.
func (i Identity) differs(who string, o Identity) error {
	var faults []string
	add := func(what, theirs, mine string) {
		if theirs != mine {
			faults = append(faults, fmt.Sprintf("%s is %q there and %q here", what, theirs, mine))
		}
	}
	add("the job", o.Job, i.Job)
	add("the number of shards", strconv.Itoa(o.Shards), strconv.Itoa(i.Shards))
	add("the parameters' layout", o.Layout, i.Layout)
	add("the plan", o.Plan, i.Plan)
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("ps: %s belongs to something else: %s; start all processes with the same job file: %w", who, strings.Join(faults, ", "), ps.ErrMismatch)
}

// outgoing puts the identity into a call.
func (i Identity) outgoing(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, keyVersion, strconv.Itoa(wire.ProtocolVersion), keyJob, i.Job, keyPlan, i.Plan,
		keyLayout, i.Layout, keyShards, strconv.Itoa(i.Shards))
}

// check compares the identity of a call with this one.
func (i Identity) check(ctx context.Context, who string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	if v := get(keyVersion); v != strconv.Itoa(wire.ProtocolVersion) {
		return fmt.Errorf("ps: the other side speaks version %q of the protocol, this one version %d; run the same release everywhere: %w",
			v, wire.ProtocolVersion, wire.ErrVersion)
	}
	shards, _ := strconv.Atoi(get(keyShards))
	return i.differs(who, Identity{Job: get(keyJob), Plan: get(keyPlan), Layout: get(keyLayout), Shards: shards})
}

// intercept checks the identity of our own calls; health and reflection are for anybody.
func (i Identity) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/monolith.") {
		if err := i.check(ctx, "the caller"); err != nil {
			return nil, failed(err)
		}
	}
	return next(ctx, req)
}
