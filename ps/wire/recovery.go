package wire

import (
	"context"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// recovery turns a handler's panic into an Internal error of its call: what one caller sends must not end the process for
// all others. A panic in the middle of a change of the parameters is another matter, which [shard.Node] sees to.
type recovery struct{ log *slog.Logger }

func (r recovery) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer r.caught(info.FullMethod, &err)
	return next(ctx, req)
}

func (r recovery) stream(srv any, st grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer r.caught(info.FullMethod, &err)
	return next(srv, st)
}

// caught must be deferred. The caller does not get the panic's value, which may hold what is not for it.
func (r recovery) caught(method string, err *error) {
	if p := recover(); p != nil {
		r.log.Error("a handler panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the server met a fault of its own in this call; its log says which")
	}
}
