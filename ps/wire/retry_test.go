package wire

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPlainWords compares what readers see with what gRPC says of connections; the texts are those of grpc v1.85.0.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		code       codes.Code
		text, want string
		again      bool
	}{
		{
			codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`,
			"dial tcp 127.0.0.1:1: connect: connection refused", true,
		},
		{codes.Unavailable, "error reading from server: EOF", "the connection broke (EOF)", true},
		{codes.Unavailable, `connection error: desc = "error reading server preface: http2: frame too large"`, "what answers there speaks HTTP/1, as a web or metrics port does, and is no server of shards (http2: frame too large)", true},
		{codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`, "it closes every connection, so it is no server of shards, or it is just ending (EOF)", true},
		{
			codes.Unavailable, `connection error: desc = "error reading server preface: raw-read tcp a->b: use of closed network connection"`,
			"it takes connections and says nothing for 5s, so it is no server of shards, or it hangs", true,
		},
		{
			codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate has expired"`,
			"the server's certificate is not trusted (tls: failed to verify certificate: x509: certificate has expired): not admitted", false,
		},
		{
			codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: certificate required"`,
			"the server wants another client certificate (remote error: tls: certificate required): not admitted", false,
		},
		{codes.Unauthenticated, "the token is not the server's", "the token is not the server's: not admitted", false},
		{codes.Unknown, "something else", "Unknown: something else", true},
		{codes.Unavailable, `connection error: desc = "no end`, `connection error: desc = "no end`, true},
	} {
		got, again := Cause(status.Error(x.code, x.text))
		if got.Error() != x.want || again != x.again {
			t.Errorf("%s:\n got %q, again %t\nwant %q, again %t", x.text, got, again, x.want, x.again)
		}
		if strings.Contains(x.want, "not admitted") != errors.Is(got, ErrNotAdmitted) {
			t.Errorf("%q: ErrNotAdmitted is %t", got, errors.Is(got, ErrNotAdmitted))
		}
	}
}

// TestWaitsUseTheWholeBudget waits neither longer than the budget nor stops before.
func TestWaitsUseTheWholeBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			b := waits{bound: 20 * time.Millisecond, limit: 2 * time.Second, budget: time.Second}
			start := time.Now()
			for b.wait(t.Context(), nil) {
			}
			if took := time.Since(start); took != time.Second {
				t.Errorf("gave up after %v of a second", took)
			}
		}
		b := waits{bound: 20 * time.Millisecond, limit: time.Second, budget: -1}
		if b.wait(t.Context(), nil) {
			t.Error("waits without a budget")
		}
	})
}
