package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/ps"
)

// verdict turns what a stream ended with into an error for the caller, and tells whether a new stream may do better.
func verdict(err error) (out error, again bool) {
	if remote, ok := errors.AsType[*remoteError](err); ok {
		return err, errors.Is(remote, ps.ErrNotReady)
	}
	if errors.Is(err, ErrProtocol) || errors.Is(err, ErrTooLarge) {
		return err, false
	}
	if errors.Is(err, io.EOF) {
		return errStreamOver, true
	}
	st, ok := status.FromError(err)
	if !ok {
		return err, true
	}
	switch st.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("wire: %s: %w", st.Message(), ErrNotAdmitted), false
	case codes.Unimplemented:
		return fmt.Errorf("wire: the server does not serve %s: %s: %w", serviceName, st.Message(), ErrProtocol), false
	case codes.InvalidArgument:
		return fmt.Errorf("wire: the server has refused a frame: %s: %w", st.Message(), ErrProtocol), false
	case codes.ResourceExhausted:
		return fmt.Errorf("wire: the server has refused a frame: %s: %w", st.Message(), ErrTooLarge), false
	case codes.Internal:
		// The transport says this of resets as well, so only what is surely a fault of the programs ends it.
		if strings.Contains(st.Message(), "unmarshal") || strings.Contains(st.Message(), "marshaling") {
			return fmt.Errorf("wire: the server was not made with ServerOptions: %s: %w", st.Message(), ErrProtocol), false
		}
	case codes.Unavailable:
		if why := handshakeFault(st.Message()); why != "" {
			return fmt.Errorf("wire: %s: %s: %w", why, st.Message(), ErrNotAdmitted), false
		}
	default:
	}
	return err, true
}

// handshakeFault tells why a connection will never come about, as far as the text of the transport's error says.
func handshakeFault(text string) string {
	switch {
	case strings.Contains(text, wantsTLS):
		return "the server wants TLS"
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return "the server does not speak TLS"
	case strings.Contains(text, "certificate required"), strings.Contains(text, "remote error: tls: bad certificate"),
		strings.Contains(text, "remote error: tls: unknown certificate"):
		return "the server wants another client certificate"
	case strings.Contains(text, "x509: "):
		return "the server's certificate is not trusted"
	case strings.Contains(text, "tls: "):
		return "TLS handshake"
	}
	return ""
}

// waits are an exponential one with full jitter (Brooker, 2015): every one is drawn from zero to a bound that doubles.
type waits struct {
	bound, limit time.Duration
	since        time.Time
	budget       time.Duration
	tries        int
}

// wait waits for the next attempt, and returns false when the budget would be used up before.
func (b *waits) wait(ctx context.Context, done <-chan struct{}) bool {
	now := time.Now()
	if b.tries == 0 {
		b.since = now
	}
	b.tries++
	d := time.Duration(rand.Int64N(int64(b.bound) + 1))
	b.bound = min(2*b.bound, b.limit)
	if now.Sub(b.since)+d > b.budget {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-done:
	}
	return true
}
