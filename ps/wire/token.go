package wire

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/monolith-go/monolith/internal/secure"
)

// bearer sends a token with every call.
type bearer struct {
	token *secure.Fresh
	local bool
}

var _ credentials.PerRPCCredentials = (*bearer)(nil)

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b *bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.token.Get()
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "the token of this side: %v", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]: gRPC refuses to send the token otherwise.
func (b *bearer) RequireTransportSecurity() bool { return !b.local }

// healthService may be asked by anybody, as those who watch over processes do.
const healthService = "/grpc.health.v1.Health/"

// gate lets calls in, before anything of their messages is received: a call that it refuses costs the server its headers.
type gate struct {
	guard *secure.Guard
	admit func(may secure.Right, method string, md metadata.MD) error
	most  int64
	open  atomic.Int64
}

func newGate(c ServerConfig) *gate {
	return &gate{guard: secure.NewGuard(c.Rules), admit: c.Admit, most: maxCalls}
}

// grantKey is of what the caller of a call may do.
type grantKey struct{}

// Granted returns what the caller may do, by the context of a call that a [Server] let in.
func Granted(ctx context.Context) secure.Right {
	may, _ := ctx.Value(grantKey{}).(secure.Right)
	return may
}

// tap is gRPC's [tap.ServerInHandle]. It runs on the goroutine that reads the connection, so it never waits.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !strings.HasPrefix(info.FullMethodName, healthService) {
		may, err := g.guard.Admit(borne(info.Header), shown(ctx))
		switch {
		case err == nil:
		case errors.Is(err, secure.ErrNoToken), errors.Is(err, secure.ErrToken), errors.Is(err, secure.ErrName):
			return nil, status.Error(codes.Unauthenticated, err.Error())
		default:
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		if g.admit != nil {
			if err := g.admit(may, info.FullMethodName, info.Header); err != nil {
				return nil, err
			}
		}
		ctx = context.WithValue(ctx, grantKey{}, may)
	}
	if g.open.Add(1) > g.most {
		g.open.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "the server has %d calls and streams open, which is its limit", g.most)
	}
	context.AfterFunc(ctx, func() { g.open.Add(-1) }) // the stream's context ends with it
	return ctx, nil
}

// borne is the token in the headers of a call, or "".
func borne(md metadata.MD) string {
	if got := md.Get("authorization"); len(got) > 0 {
		if token, ok := strings.CutPrefix(got[0], "Bearer "); ok {
			return token
		}
	}
	return ""
}

// shown is the verified certificate of who calls, or nil.
func shown(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}
