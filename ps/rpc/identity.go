package rpc

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// Identity describes what a process belongs to and what it is there. Job must be equal on both sides. A trainer's
// Recipe, Model and Layout must be the server's, and its Plan where it reads the server's Source; a backfill and the stream
// that follows it are two sources of one model. Of a reader only Shape counts, and Recipe if it names one.
type Identity struct {
	Role ps.Role
	// Job is the job's name.
	Job string
	// Shape is the hash of what the weights look like ([param.Shape.Hash]), Layout that of it and of the rules that shards
	// train by ([param.Layout.Hash]), Model names the graph.
	Shape, Layout, Model string
	// Source names what is read, Plan is the hash of how.
	Source, Plan string
	// Precision is the format in which rows and gradients travel. A trainer's must be the server's; a reader has its own.
	Precision param.Precision
	// Recipe describes what examples are made of, and what of it must be the same: [Recipe.Hash] travels with each call, and
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

// Error describes which hashes differ; Recipe has the detail for callers that can parse it.
func (e *RecipeError) Error() string { return e.err.Error() }

// Unwrap returns the refusal.
func (e *RecipeError) Unwrap() error { return e.err }

const (
	keyVersion   = "monolith-version"
	keyJob       = "monolith-job"
	keyPlan      = "monolith-plan"
	keyLayout    = "monolith-layout"
	keyShape     = "monolith-shape"
	keyModel     = "monolith-model"
	keySource    = "monolith-source"
	keyRole      = "monolith-role"
	keyRecipe    = "monolith-recipe"
	keyPrecision = "monolith-precision"
	// A coordinator says with each call to a shard where it keeps the snapshots and who it is.
	keyDir         = "monolith-dir-bin"
	keyCoordinator = "monolith-coordinator"
	keyTerm        = "monolith-term"
	keyProcess     = "monolith-process"
)

// differs says what is not the same at who, the other side, and at me. What follows from another difference that is reported is
// left out. The own values are sent only to authenticated clients: others get which of their own values do not fit.
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
		known = false // a client that has the name of another job is not one of this's
		add("the jobs have other names", strconv.Quote(o.Job), strconv.Quote(i.Job))
	} else {
		// Each follows from what comes before it.
		const features = "the features differ (parse.features, label, weight)"
		shape := func() bool { return add("the parameters differ (model, features)", "shape "+o.Shape, "shape "+i.Shape) }
		switch {
		case o.Role == ps.Reader:
			recipe = o.Recipe.Hash != "" && add(features, "recipe "+o.Recipe.Hash, "recipe "+i.Recipe.Hash)
			if !recipe {
				shape()
			}
		case add(features, "recipe "+o.Recipe.Hash, "recipe "+i.Recipe.Hash):
			recipe = true
		case shape(), add("the rules differ (optimizer, learning rates, L2, initializers, seed)", "layout "+o.Layout, "layout "+i.Layout):
		case add("the models differ", "model "+o.Model, "model "+i.Model):
		case add("rows and gradients travel in other formats (ps.precision)", o.Precision.String(), i.Precision.String()):
		case o.Source == i.Source:
			add(fmt.Sprintf("the plans of source %q differ (source, parse, batch)", i.Source), "plan "+o.Plan, "plan "+i.Plan)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	err := fmt.Errorf("ps: %s; start all processes of one source with the same job file and the same --set (monolith plan and train --print-config show what a process would do): %w",
		strings.Join(faults, "; "), ps.ErrMismatch)
	if recipe && known {
		return &RecipeError{i.Recipe.Text, err}
	}
	return err
}

// outgoing puts the identity into a call.
func (i Identity) outgoing(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, keyVersion, strconv.Itoa(wire.ProtocolVersion), keyJob, i.Job, keyPlan, i.Plan,
		keyLayout, i.Layout, keyShape, i.Shape, keyModel, i.Model, keySource, i.Source, keyRole, i.Role.String(),
		keyRecipe, i.Recipe.Hash, keyPrecision, i.Precision.String())
}

// of returns the identity in the headers of a call.
func of(md metadata.MD) Identity {
	id := Identity{
		Job: first(md, keyJob), Plan: first(md, keyPlan), Layout: first(md, keyLayout), Shape: first(md, keyShape), Model: first(md, keyModel),
		Source: first(md, keySource), Recipe: Recipe{Hash: first(md, keyRecipe)},
	}
	if first(md, keyRole) == ps.Reader.String() {
		id.Role = ps.Reader
	}
	var err error
	if id.Precision, err = param.ParsePrecision(cmp.Or(first(md, keyPrecision), param.Float32.String())); err != nil {
		id.Precision = math.MaxUint8 // is nobody's
	}
	return id
}

func first(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// version reports whether a caller speaks our version of the protocol. Errors: [wire.ErrVersion].
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
