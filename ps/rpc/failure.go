package rpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
)

// failed is the status of an error, with what it is as a detail.
func failed(err error) error {
	if err == nil {
		return nil
	}
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, ps.ErrNotReady):
		code = codes.Unavailable
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	st, detailErr := status.New(code, err.Error()).WithDetails(&psv1.Failure{Codes: wire.Codes(err)})
	if detailErr != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}

// lost tells that the call itself failed: nobody answered, or not the one who was asked.
func lost(err error) bool {
	st, ok := status.FromError(err)
	return ok && (st.Code() == codes.Unavailable || st.Code() == codes.DeadlineExceeded)
}

// from turns the status of a call to addr into the error it stands for.
func from(ctx context.Context, addr string, err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		if f, ok := d.(*psv1.Failure); ok {
			return wire.Remote(st.Message(), f.Codes)
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("ps: %s: %w", addr, context.Cause(ctx))
	case st.Code() == codes.Unavailable, st.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("ps: %s: %s: %w", addr, st.Message(), ps.ErrUnreachable)
	case st.Code() == codes.Unauthenticated:
		return fmt.Errorf("ps: %s: %s: %w", addr, st.Message(), wire.ErrNotAdmitted)
	case st.Code() == codes.Unimplemented:
		return fmt.Errorf("ps: %s does not serve this: is it the process of shard 0? %s: %w", addr, st.Message(), ps.ErrMismatch)
	}
	return fmt.Errorf("ps: %s: %s (%s)", addr, st.Message(), st.Code())
}
