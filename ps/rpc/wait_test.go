package rpc_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/rpc"
)

// TestWaitFor: that nobody listens, or what listens says nothing, is an error after as long as the caller waits, however long calls are made again later.
func TestWaitFor(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody says a word
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, x := range map[string]struct{ addr, want string }{
		"nobody listens": {testbed.FreeAddr(t), "refused"},
		"nobody speaks":  {silent.Addr().String(), "gives no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wait := range []time.Duration{-1, 50 * time.Millisecond} {
				began := time.Now()
				r, err := rpc.Dial(t.Context(), rpc.Options{Addrs: []string{x.addr}, RetryFor: time.Hour, WaitFor: wait})
				if err == nil {
					t.Fatal("it is there", r.Close(t.Context()))
				}
				for _, w := range []string{x.addr, x.want, "tried for", "--shard 0"} {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("%v lacks %q", err, w)
					}
				}
				if !errors.Is(err, ps.ErrUnreachable) || strings.Contains(err.Error(), "ps.retry") {
					t.Errorf("%v", err)
				}
				// gRPC alone waits 20 s for the first words of a server.
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("it took %v", took)
				}
			}
		})
	}
}
