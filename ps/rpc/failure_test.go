package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testbed"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// TestFailures follows errors from a server to a client: what they are, whether the call is made again, and what a reader
// gets it.
func TestFailures(t *testing.T) {
	t.Parallel()
	third := fmt.Errorf("ps: shard 1 at b:1: connection refused: %w", ps.ErrUnreachable)
	for _, x := range []struct {
		name  string
		sent  error // what the client's call returns
		is    error
		again bool
		want  string
	}{
		{"shard 0 waits", failed(fmt.Errorf("%w: %w", third, ps.ErrNotReady)), ps.ErrNotReady, true, "ps: shard 1 at b:1"},
		{"of a count", failed(fmt.Errorf("ps: shard 0 of 2: %w", ps.ErrFull)), ps.ErrFull, false, "ps: shard 0 of 2 at a:1: "},
		{"another shard is gone", failed(third), ps.ErrUnreachable, true, "ps: shard 1 at b:1"},
		{"nobody is there", status.Error(codes.Unavailable, "error reading from server: EOF"), ps.ErrUnreachable, true, "ps: shard 0 at a:1: the connection broke (EOF)"},
		{"too late", status.Error(codes.DeadlineExceeded, "late"), ps.ErrUnreachable, true, "ps: shard 0 at a:1"},
		{"another job", failed(fmt.Errorf("ps: the jobs have other names: %w", ps.ErrMismatch)), ps.ErrMismatch, false, "ps: shard 0 at a:1: the jobs have"},
		{"another release", failed(fmt.Errorf("ps: the caller speaks: %w", wire.ErrVersion)), wire.ErrVersion, false, "ps: shard 0 at a:1: the caller"},
		{"token", status.Error(codes.Unauthenticated, "the token is not the server's"), wire.ErrNotAdmitted, false, "ps: shard 0 at a:1: the token"},
		{"token between shards", failed(fmt.Errorf("ps: shard 1: %w: %w", wire.ErrNotAdmitted, ps.ErrNotReady)), wire.ErrNotAdmitted, false, "ps: shard 1"},
		{"no TLS", status.Error(codes.Unavailable, "tls: first record does not look like a TLS handshake"), wire.ErrNotAdmitted, false, "does not speak TLS"},
		{"another server", status.Error(codes.Unimplemented, "unknown service"), ps.ErrMismatch, false, "no server of shards"},
		{"rolled back", failed(ps.ErrRolledBack), ps.ErrRolledBack, false, "gone back"},
	} {
		known := from(t.Context(), "shard 0 at a:1", x.sent)
		if !errors.Is(known, x.is) || !strings.Contains(known.Error(), x.want) || lost(x.sent, known) != x.again {
			t.Errorf("%s: %v, again %t; want %q, a %v, again %t", x.name, known, lost(x.sent, known), x.want, x.is, x.again)
		}
	}
}

// TestLearntAddresses: where no process answers at an address that shard 0 named, errors of calls and of streams say so. Other addresses are the user's.
func TestLearntAddresses(t *testing.T) {
	t.Parallel()
	gone := testbed.FreeAddr(t)
	for _, x := range []struct {
		given []string
		now   []string
		says  bool
	}{
		{[]string{"a:1"}, []string{"a:1", gone}, true},
		{[]string{"a:1", gone}, []string{"a:1", gone}, false},
		{[]string{"a:1", gone, "c:1"}, []string{"a:1", gone}, false},
		{[]string{"a:1"}, []string{"a:1", ps.JoinAddr(gone, gone)}, true},
	} {
		r := &Remote{o: Options{Addrs: x.given, RetryFor: -1, Logger: slog.New(slog.DiscardHandler)}, coords: []coordinating{{t: &Target{Addr: "a:1"}}}}
		err := errors.Join(r.adopt(ps.ClusterInfo{Addrs: x.given}), r.adopt(ps.ClusterInfo{Generation: 1, Addrs: x.now}))
		if err != nil {
			t.Fatal(err)
		}
		p := r.peers[1]
		_, called := p.Newest(t.Context())
		_, streamed := connect(t.Context(), p.cc, p.t, 2, 1, 1, "w/0")
		want := "shard 0 at a:1 says that shard 1 is at " + gone + ", where none answers from here: dial tcp " + gone
		for _, err := range []error{called, streamed} {
			if !errors.Is(err, ps.ErrUnreachable) || !strings.Contains(err.Error(), gone) || strings.Contains(err.Error(), want) != x.says || !x.says && strings.Contains(err.Error(), "says") {
				t.Errorf("given %v, now %v: %v; says where from: want %t", x.given, x.now, err, x.says)
			}
		}
		for _, p := range r.peers {
			_ = p.Close() // nothing was opened
		}
	}
}

// TestMessagesOfControlThatAreTooLarge: gRPC's own refusal names the limits, and not ps.max_message as what helps.
func TestMessagesOfControlThatAreTooLarge(t *testing.T) {
	t.Parallel()
	sent := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (16777300 vs. 16777216)")
	known := from(t.Context(), "shard 0 at a:1", sent)
	if errors.Is(known, wire.ErrTooLarge) || lost(sent, known) {
		t.Errorf("%v: taken for a message of rows, or for a call to make again", known)
	}
	for _, want := range []string{"shard 0 at a:1", "16777300 vs. 16777216", "at most 16 MiB and its answer 256 MiB", "fewer or larger files"} {
		if !strings.Contains(known.Error(), want) {
			t.Errorf("%v, want %q in it", known, want)
		}
	}
	if known := from(t.Context(), "shard 0 at a:1", status.Error(codes.ResourceExhausted, "the server has 9 calls and streams open, which is its limit")); strings.Contains(known.Error(), "MiB") {
		t.Errorf("a server with too many calls: %v", known)
	}
}

// TestLongCallsAreMadeAgain: what shard 0 has worked on for longer than ps.retry before it failed, as a change of the number of shards, is asked for again for as long as
// anything else. A shard 0 that gives no answer for as long is given up, and so is one that only waits, or works
// that long on every call.
func TestLongCallsAreMadeAgain(t *testing.T) {
	t.Parallel()
	waits := failed(fmt.Errorf("ps: shard 1 of 4: no lease: %w", ps.ErrNotReady))
	for _, x := range []struct {
		name  string
		first error // what the first call returns, after 40 s
		later int   // how many more calls fail at once
		want  error
		calls int // 0: many
		slow  int // how many of the later calls take 40 s too
	}{
		{"answered", waits, 5, nil, 7, 0},
		{"silent", status.Error(codes.Unavailable, "error reading from server: EOF"), 5, ps.ErrUnreachable, 1, 0},
		{"waits", waits, 1 << 30, ps.ErrUnreachable, 0, 0},
		{"works", waits, 10, ps.ErrUnreachable, 2, 10},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, calls := &Remote{o: Options{Logger: slog.New(slog.DiscardHandler)}, coords: []coordinating{{t: &Target{Addr: "a:1"}}}}, 0
				began := time.Now()
				_, err := until(t.Context(), r, patience{total: 30 * time.Second}, func(psv1.CoordinatorClient, context.Context, *psv1.ScaleRequest, ...grpc.CallOption) (*psv1.ScaleResponse, error) {
					switch calls++; {
					case calls == 1:
						time.Sleep(40 * time.Second)
						return nil, x.first
					case calls <= 1+x.later:
						if calls <= 1+x.slow {
							time.Sleep(40 * time.Second)
						}
						return nil, waits
					}
					return &psv1.ScaleResponse{}, nil
				}, &psv1.ScaleRequest{})
				if !errors.Is(err, x.want) || x.calls != 0 && calls != x.calls {
					t.Errorf("%v after %d calls, want %v after %d", err, calls, x.want, x.calls)
				}
				if took := time.Since(began); took > 85*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestGaveUp names whom the worker has waited for: the one that does not answer, or the one that shard 0 waits for.
func TestGaveUp(t *testing.T) {
	t.Parallel()
	first := &Target{Addr: "a:1"}
	for _, x := range []struct {
		sent  error
		words []string
	}{
		{status.Error(codes.Unavailable, "error reading from server: EOF"), []string{"shard 0 at a:1", "--shard 0"}},
		{
			failed(fmt.Errorf("ps: shard 1 at b:1: connection refused: %w", ps.ErrNotReady)),
			[]string{"shard 0 at a:1 answers, and waits itself: shard 1 at b:1: connection refused", "are all shards running"},
		},
	} {
		err := gaveUp(first, from(t.Context(), first.String(), x.sent), relayed(x.sent), 1500*time.Millisecond, "ps.retry")
		if !errors.Is(err, ps.ErrUnreachable) {
			t.Errorf("%v is no ErrUnreachable", err)
		}
		for _, w := range append(x.words, "tried for 1.5s (ps.retry)") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v lacks %q", err, w)
			}
		}
	}
}

// TestDiffers names what is not the same on which side, without what follows from it.
func TestDiffers(t *testing.T) {
	t.Parallel()
	mine := Identity{Job: "a", Source: "s", Plan: "p", Shape: "h", Model: "g", Layout: "l", Recipe: Recipe{Hash: "r"}}
	for _, x := range []struct {
		theirs Identity
		want   string
	}{
		{mine, ""},
		{Identity{Job: "b", Plan: "q", Layout: "m"}, `ps: the jobs have other names: the caller has "b", shard 0 another; start`},
		{but(mine, func(i *Identity) { i.Recipe.Hash, i.Shape = "x", "x" }), "ps: the features differ (parse.features, label, weight): shard 0 has recipe r, the caller recipe x; start"},
		{but(mine, func(i *Identity) { i.Shape, i.Layout = "x", "x" }), "ps: the parameters differ (model, features): shard 0 has shape h, the caller shape x; start"},
		{but(mine, func(i *Identity) { i.Model = "x" }), "ps: the models differ: shard 0 has model g, the caller model x; start"},
		{but(mine, func(i *Identity) { i.Layout = "x" }), "ps: the rules differ (optimizer, learning rates, L2, initializers, seed): shard 0 has layout l, the caller layout x; start"},
		{but(mine, func(i *Identity) { i.Plan = "q" }), `ps: the plans of source "s" differ (source, parse, batch): shard 0 has plan p, the caller plan q; start`},
		// Another source of the same model has another plan.
		{but(mine, func(i *Identity) { i.Source, i.Plan = "t", "q" }), ""},
		{but(mine, func(i *Identity) { i.Source, i.Plan, i.Layout = "t", "q", "x" }), "ps: the rules differ"},
		// Of a reader the shape counts, and the recipe if it names one.
		{Identity{Role: ps.Reader, Job: "a", Shape: "h"}, ""},
		{Identity{Role: ps.Reader, Job: "a", Shape: "h", Layout: "x", Model: "x", Plan: "x", Recipe: Recipe{Hash: "r"}}, ""},
		{Identity{Role: ps.Reader, Job: "a", Shape: "x"}, "ps: the parameters differ (model, features): shard 0 has shape h, the caller shape x; start"},
		{Identity{Role: ps.Reader, Job: "a", Shape: "h", Recipe: Recipe{Hash: "x"}}, "ps: the features differ"},
	} {
		err := mine.differs("shard 0", "the caller", x.theirs, true)
		if x.want == "" && err != nil || x.want != "" && (!errors.Is(err, ps.ErrMismatch) || !strings.HasPrefix(err.Error(), x.want)) {
			t.Errorf("%v, want %q", err, x.want)
		}
	}
}

func but(i Identity, change func(*Identity)) Identity {
	change(&i)
	return i
}

// TestOtherRecipe is an error with the recipe of the other side, across the wire, for clients that may see it.
func TestOtherRecipe(t *testing.T) {
	t.Parallel()
	mine := Identity{Job: "a", Plan: "p", Layout: "l", Recipe: Recipe{Hash: "1111", Text: `{"features":["our feature"]}`}}
	theirs := Identity{Job: "a", Plan: "q", Layout: "m", Recipe: Recipe{Hash: "2222"}}
	if got := of(mdOf(theirs.outgoing(t.Context()))); got != theirs {
		t.Fatalf("an identity comes as %+v, went as %+v", got, theirs)
	}
	err := from(t.Context(), "shard 0", failed(mine.differs("shard 0", "the caller", theirs, true)))
	var refused *RecipeError
	if !errors.As(err, &refused) || !errors.Is(err, ps.ErrMismatch) || refused.Recipe != mine.Recipe.Text {
		t.Errorf("got %#v", err)
	}
	if want := "the features differ (parse.features, label, weight): shard 0 has recipe 1111, the caller recipe 2222; start all"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	err = from(t.Context(), "shard 0", failed(mine.differs("shard 0", "the caller", theirs, false)))
	if errors.As(err, &refused) || !errors.Is(err, ps.ErrMismatch) || strings.Contains(err.Error(), "1111") {
		t.Errorf("a stranger hears %v", err)
	}
}

func mdOf(ctx context.Context) metadata.MD {
	md, _ := metadata.FromOutgoingContext(ctx)
	return md
}

// TestStrangers get only which of their own values do not fit.
func TestStrangers(t *testing.T) {
	t.Parallel()
	mine := Identity{Job: "our job", Plan: "our plan", Layout: "our layout"}
	for _, theirs := range []Identity{
		{}, {Job: "b"}, {Job: "our job"}, {Job: "our job", Layout: "our layout"},
	} {
		for _, known := range []bool{false, true} {
			err := mine.differs("shard 0", "the caller", theirs, known)
			if err == nil {
				t.Fatalf("%+v is not refused", theirs)
			}
			secrets := []string{"our job", "our plan", "our layout"}
			if known && theirs.Job == mine.Job {
				continue // a client with the token and this job gets it
			}
			for _, s := range secrets {
				if strings.Contains(err.Error(), s) && s != theirs.Job && s != theirs.Layout {
					t.Errorf("known %t, %+v: %q tells %q", known, theirs, err, s)
				}
			}
		}
	}
}
