package rpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

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
	// Recipe says what examples are made of, and what of it must be the same: [Recipe.Hash] travels with each call, and
	// the text with the refusal of one whose hash is another ([RecipeError]).
	Recipe Recipe
}

// Recipe is the description of a job's examples, for a program, and the hash of the part of it that must be the same in all
// processes.
type Recipe struct{ Hash, Text string }

// RecipeError is the refusal by a process whose examples are made of something else. It wraps [ps.ErrMismatch].
type RecipeError struct {
	// Recipe is the other side's [Recipe.Text], empty when it does not know the caller well enough.
	Recipe string
	err    error
}

// Error says which hashes differ; Recipe says more to whoever can read it.
func (e *RecipeError) Error() string { return e.err.Error() }

// Unwrap returns the refusal.
func (e *RecipeError) Unwrap() error { return e.err }

const (
	keyVersion = "monolith-version"
	keyJob     = "monolith-job"
	keyPlan    = "monolith-plan"
	keyLayout  = "monolith-layout"
	keyShards  = "monolith-shards"
	keyRecipe  = "monolith-recipe"
	// A coordinator says with each call to a shard where it keeps the snapshots and who it is.
	keyDir         = "monolith-dir-bin"
	keyCoordinator = "monolith-coordinator"
	keyProcess     = "monolith-process"
)

// differs says what is not the same at who, the other side, and at me. What follows from something else that is told is
// left out. What I have is said only to whom I know: a stranger hears which of its own values do not fit.
func (i Identity) differs(me, who string, o Identity, known bool) error {
	var faults []string
	recipe := false
	add := func(what, theirs, mine string) bool {
		switch {
		case theirs == mine:
			return false
		case known:
			faults = append(faults, fmt.Sprintf("%s: %s has %s, %s %s", what, me, mine, who, theirs))
		default:
			faults = append(faults, fmt.Sprintf("%s: %s has %s, %s another", what, who, theirs, me))
		}
		return true
	}
	if o.Job != i.Job {
		known = false // whoever knows the name of another job only is none of this one's
		add("the jobs have other names", strconv.Quote(o.Job), strconv.Quote(i.Job))
	} else {
		add("the numbers of shards differ", strconv.Itoa(o.Shards), strconv.Itoa(i.Shards))
		// The rest follows from the features.
		recipe = add("the features differ (parse.features, label, weight)", "recipe "+o.Recipe.Hash, "recipe "+i.Recipe.Hash)
		if !recipe && !add("the parameters differ (model, features, optimizer)", "layout "+o.Layout, "layout "+i.Layout) {
			add("the plans differ (source, parse, batch)", "plan "+o.Plan, "plan "+i.Plan)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	err := fmt.Errorf("ps: %s; start all processes with the same job file and the same --set (monolith plan and train --print-config show what a process would do): %w",
		strings.Join(faults, "; "), ps.ErrMismatch)
	if recipe && known {
		return &RecipeError{i.Recipe.Text, err}
	}
	return err
}

// outgoing puts the identity into a call.
func (i Identity) outgoing(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, keyVersion, strconv.Itoa(wire.ProtocolVersion), keyJob, i.Job, keyPlan, i.Plan,
		keyLayout, i.Layout, keyShards, strconv.Itoa(i.Shards), keyRecipe, i.Recipe.Hash)
}

// of returns the identity in the headers of a call.
func of(md metadata.MD) Identity {
	shards, _ := strconv.Atoi(first(md, keyShards))
	return Identity{Job: first(md, keyJob), Plan: first(md, keyPlan), Layout: first(md, keyLayout), Shards: shards, Recipe: Recipe{Hash: first(md, keyRecipe)}}
}

func first(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// version tells whether a caller speaks our version of the protocol. Errors: [wire.ErrVersion].
func version(md metadata.MD, me string) error {
	v := first(md, keyVersion)
	if v == strconv.Itoa(wire.ProtocolVersion) {
		return nil
	}
	if v == "" {
		v = "none"
	}
	return fmt.Errorf("ps: the caller speaks version %.20s of the protocol, %s version %d; run the same release everywhere: %w",
		v, me, wire.ProtocolVersion, wire.ErrVersion)
}

// notShard says that a shard was taken for another.
func notShard(is, called int) error {
	return fmt.Errorf("ps: this is shard %d and was called as shard %d: ps.addresses are in another order on the two sides: %w", is, called, ps.ErrMismatch)
}
