package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/ps"
)

// Cause turns what a call or stream ended with into an error in plain words, and reports whether another attempt may do
// better. gRPC's status stays in it. Errors: [ErrNotAdmitted], [ErrProtocol], [ErrTooLarge], or none of ours.
func Cause(err error) (plain error, again bool) { return verdict(err) }

// verdict turns what a stream ended with into an error for the caller, and reports whether a new stream may do better.
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
		return fmt.Errorf("%s: %w", st.Message(), ErrNotAdmitted), false
	case codes.Unimplemented:
		return fmt.Errorf("the server does not serve %s: %s: %w", serviceName, st.Message(), ErrProtocol), false
	case codes.InvalidArgument:
		return fmt.Errorf("the server has refused a frame: %s: %w", st.Message(), ErrProtocol), false
	case codes.ResourceExhausted:
		return fmt.Errorf("the server has refused a frame: %s: %w", st.Message(), ErrTooLarge), false
	case codes.Unavailable:
		if why := handshakeFault(st.Message()); why != "" {
			return fmt.Errorf("%s: %w", why, ErrNotAdmitted), false
		}
		return &transportError{text: plainText(st.Message()), dial: strings.Contains(st.Message(), dialFault), err: err}, true
	default:
	}
	return &transportError{text: st.Code().String() + ": " + unwrapped(st.Message()), err: err}, true
}

// handshakeFault returns why a connection can never be made, as far as the text of the transport's error says.
func handshakeFault(text string) string {
	var why string
	switch {
	case strings.Contains(text, wantsTLS):
		return "the server wants TLS"
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return "the server does not speak TLS"
	case strings.Contains(text, "certificate required"), strings.Contains(text, "remote error: tls: bad certificate"),
		strings.Contains(text, "remote error: tls: unknown certificate"):
		why = "the server wants another client certificate"
	case strings.Contains(text, "x509: "):
		why = "the server's certificate is not trusted"
	case strings.Contains(text, "tls: "):
		why = "TLS handshake"
	default:
		return ""
	}
	return why + " (" + strings.TrimPrefix(unwrapped(text), prefaceFault) + ")"
}

// transportError is a connection that failed, in plain words.
type transportError struct {
	text string
	dial bool // no connection was made
	err  error
}

// Error returns the plain words.
func (e *transportError) Error() string { return e.text }

// Unwrap returns gRPC's error, or the line's.
func (e *transportError) Unwrap() error { return e.err }

// Learnt adds to err from where the address in who, "shard 1 at b:1", is known, such as "shard 0 at a:1". Without from it was given, and err stays.
// So does every error other than a failure to connect. learnt reports whether the text is another.
func Learnt(err error, who, from string) (_ error, learnt bool) {
	t, ok := errors.AsType[*transportError](err)
	if !ok || !t.dial || from == "" {
		return err, false
	}
	name, addr, _ := strings.Cut(who, " at ")
	return &learntError{fmt.Sprintf("%s says that %s is at %s, where none answers from here: %s", from, name, addr, t.text), err}, true
}

// learntError is a failure to connect to an address that another process named.
type learntError struct {
	text string
	err  error
}

// Error returns the text of the failure, and which process named the address.
func (e *learntError) Error() string { return e.text }

// Unwrap returns the failure.
func (e *learntError) Unwrap() error { return e.err }

// prefaceFault is how gRPC begins the error of a connection whose server did not begin as HTTP/2 does.
const prefaceFault = "error reading server preface: "

// dialFault is how gRPC begins the error of a connection that was not made.
const dialFault = "Error while dialing: "

// unwrapped takes the layers off that gRPC puts around the error of a connection.
func unwrapped(text string) string {
	if _, quoted, ok := strings.Cut(text, "desc = "); ok {
		if s, err := strconv.Unquote(quoted); err == nil {
			text = s
		}
	}
	for _, layer := range [...]string{"transport: ", dialFault, "authentication handshake failed: "} {
		text = strings.TrimPrefix(text, layer)
	}
	return text
}

// plainText says what became of a connection for a reader who knows nothing of gRPC.
func plainText(text string) string {
	text = unwrapped(text)
	if why, ok := strings.CutPrefix(text, prefaceFault); ok {
		switch {
		case strings.Contains(why, "use of closed network connection"), strings.Contains(why, "i/o timeout"):
			return fmt.Sprintf("it takes connections and says nothing for %v, so it is no server of shards, or it hangs", connectTimeout)
		case strings.Contains(why, "http2: "):
			return "what answers there speaks HTTP/1, as a web or metrics port does, and is no server of shards (" + why + ")"
		}
		return "it closes every connection, so it is no server of shards, or it is just ending (" + why + ")"
	}
	if why, ok := strings.CutPrefix(text, "error reading from server: "); ok {
		return "the connection broke (" + why + ")"
	}
	return text
}

// waits are an exponential one with full jitter (Brooker, 2015): every one is drawn from zero to a bound that doubles.
type waits struct {
	bound, limit time.Duration
	since        time.Time
	budget       time.Duration
	tries        int
}

// wait waits for the next attempt, and returns false when the budget is used up.
func (b *waits) wait(ctx context.Context, done <-chan struct{}) bool {
	now := time.Now()
	if b.tries == 0 {
		b.since = now
	}
	b.tries++
	left := b.budget - now.Sub(b.since)
	if left <= 0 {
		return false
	}
	// The last attempt is made when the budget ends: until then the shard may come back.
	d := min(time.Duration(rand.Int64N(int64(b.bound)+1)), left)
	b.bound = min(2*b.bound, b.limit)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-done:
	}
	return true
}
