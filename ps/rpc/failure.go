package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/monolith-go/monolith/internal/failure"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// failed is the status of an error, with what it is as a detail.
func failed(err error) error {
	if err == nil {
		return nil
	}
	code := codes.FailedPrecondition
	switch {
	case failure.Has(err, failure.NotReady, failure.Unreachable): // another shard may come back
		code = codes.Unavailable
	case failure.Has(err, failure.Canceled):
		code = codes.Canceled
	case failure.Has(err, failure.Deadline):
		code = codes.DeadlineExceeded
	}
	details := []protoadapt.MessageV1{&psv1.Failure{Codes: wire.Codes(err)}}
	if r, ok := errors.AsType[*RecipeError](err); ok {
		details = append(details, wrapperspb.String(r.Recipe))
	}
	st, detailErr := status.New(code, err.Error()).WithDetails(details...)
	if detailErr != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}

// lost reports whether the call itself failed, so that another attempt may do better: nobody answered, or not the one who was
// asked. known is what from made of it.
func lost(err, known error) bool {
	if failure.Has(known, failure.NotAdmitted, failure.Version, failure.Mismatch) {
		return false
	}
	st, ok := status.FromError(err)
	return ok && (st.Code() == codes.Unavailable || st.Code() == codes.DeadlineExceeded)
}

// relayed reports whether the one who was asked has answered: what failed is somewhere else.
func relayed(err error) bool {
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if _, ok := d.(*psv1.Failure); ok {
			return true
		}
	}
	return false
}

// from turns the status of a call to who, a shard at an address, into the error it stands for.
func from(ctx context.Context, who string, err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	var remote error
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *psv1.Failure:
			text, _ := wire.Placed(st.Message(), who)
			remote = wire.Remote(text, d.Codes)
			if errors.Is(remote, ps.ErrMismatch) || errors.Is(remote, wire.ErrVersion) {
				remote = wire.Remote(wire.PlacedOrNamed(text, who), d.Codes)
			}
		case *wrapperspb.StringValue:
			if remote != nil {
				remote = &RecipeError{d.Value, remote}
			}
		}
	}
	if remote != nil {
		return remote
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("ps: %s gives no answer in time: %w: %w", who, context.Cause(ctx), ps.ErrUnreachable)
	case ctx.Err() != nil:
		return fmt.Errorf("ps: %s: %w", who, context.Cause(ctx))
	case st.Code() == codes.Unimplemented:
		return fmt.Errorf("ps: %s: what answers there is no server of shards, or of another release (%s): %w", who, st.Message(), ps.ErrMismatch)
	case st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "message larger than max"): // no Failure: gRPC itself has refused it, on either side
		return fmt.Errorf("ps: %s: %s: a call of control has at most %d MiB and its answer %d MiB, whatever ps.max_message is: splits and what is remembered of them travel in it, so read fewer or larger files",
			who, st.Message(), maxControl>>20, maxAnswer>>20)
	}
	plain, _ := wire.Cause(err)
	if st.Code() == codes.Unavailable && !errors.Is(plain, wire.ErrNotAdmitted) || st.Code() == codes.DeadlineExceeded {
		return fmt.Errorf("ps: %s: %w: %w", who, plain, ps.ErrUnreachable)
	}
	return fmt.Errorf("ps: %s: %w", who, plain)
}
