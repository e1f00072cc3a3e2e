package serving

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/clip"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// invalid is an error of the request.
func invalid(format string, args ...any) error {
	return refuse(codes.InvalidArgument, format, args...)
}

// refuse is an error with a code. Long values are cut: gRPC drops messages that do not fit a header, and a client wants the sentence.
func refuse(code codes.Code, format string, args ...any) error {
	return status.Errorf(code, format, clip.Args(args)...)
}

// asStatus gives an error of a prediction the code that its caller gets.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if bad, ok := errors.AsType[*pipeline.DataError](err); ok {
		if bad.Err != nil {
			return invalid("example %d: %s: %v", bad.Position, bad.Reason, bad.Err)
		}
		return invalid("example %d: %s", bad.Position, bad.Reason)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the deadline has passed")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the caller has gone")
	case errors.Is(err, pipeline.ErrSchema):
		return invalid("%v", err)
	case fsx.Damage(err):
		return status.Errorf(codes.DataLoss, "%v", err)
	}
	return status.Errorf(codes.Internal, "%v", err)
}
