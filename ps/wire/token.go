package wire

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
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
	want  *secure.Fresh // the token; nil: none is wanted
	admit func(method string, md metadata.MD) error
	most  int64
	open  atomic.Int64
}

func newGate(c ServerConfig) *gate {
	g := &gate{admit: c.Admit, most: maxCalls}
	if c.Token != nil {
		g.want = secure.NewFresh(c.Token)
	}
	return g
}

// tap is gRPC's [tap.ServerInHandle]. It runs on the goroutine that reads the connection, so it never waits.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !strings.HasPrefix(info.FullMethodName, healthService) {
		if err := g.bears(info.Header); err != nil {
			return nil, err
		}
		if g.admit != nil {
			if err := g.admit(info.FullMethodName, info.Header); err != nil {
				return nil, err
			}
		}
	}
	if g.open.Add(1) > g.most {
		g.open.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "the server has %d calls and streams open, which is its limit", g.most)
	}
	context.AfterFunc(ctx, func() { g.open.Add(-1) }) // the stream's context ends with it
	return ctx, nil
}

// bears reports whether the headers have the token.
func (g *gate) bears(md metadata.MD) error {
	if g.want == nil {
		return nil
	}
	want, err := g.want.Get()
	if err != nil {
		return status.Errorf(codes.Unavailable, "the server cannot read its token: %v", err)
	}
	got := md.Get("authorization")
	if len(got) == 0 {
		return status.Error(codes.Unauthenticated, "the server wants a token, and none was sent")
	}
	token, ok := strings.CutPrefix(got[0], "Bearer ")
	// Hashes have one length, so that the time shows nothing about the token's either.
	hash, wanted := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(want))
	if !ok || subtle.ConstantTimeCompare(hash[:], wanted[:]) != 1 {
		return status.Error(codes.Unauthenticated, "the token is not the server's")
	}
	return nil
}
