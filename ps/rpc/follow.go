package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/internal/failure"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/wire"
)

const (
	// maxPart is how much of a piece of the log travels in a message, bytes; maxPiece is what no piece is above: it ends with the record
	// that makes it large, which has at most 1 GiB.
	maxPart  = 512 << 10
	maxPiece = 1<<30 + 4<<20
	// minWait and maxWait bound how long a standby waits before it connects again.
	minWait = 50 * time.Millisecond
	maxWait = time.Second
)

// standbyService serves the coordinator's and the other process's calls to a process of a pair.
type standbyService struct{ s *Server }

// Lease implements psv1.StandbyServer.
func (s *standbyService) Lease(ctx context.Context, r *psv1.LeaseRequest) (*psv1.LeaseResponse, error) {
	c, err := s.s.o.Node.Lease(ctx, ps.LeaseCall{
		Coordinator: r.Coordinator, Call: r.Call, Term: r.Term, Process: r.Process, Stamp: r.Stamp, Lease: time.Duration(r.LeaseNanos),
	})
	if err != nil {
		return nil, failed(err)
	}
	return &psv1.LeaseResponse{
		Process: c.Process, Stamp: c.Stamp, InCharge: c.InCharge, Blank: c.Blank, Synced: c.Synced, Whole: c.Whole, Lag: c.Lag,
	}, nil
}

// Follow implements psv1.StandbyServer.
func (s *standbyService) Follow(st grpc.BidiStreamingServer[psv1.FollowLogRequest, psv1.FollowLogResponse]) (err error) {
	feed, err := s.begin(st)
	if err != nil {
		return failed(err)
	}
	defer func() { err = failed(errors.Join(err, feed.Close())) }()
	s.s.wg.Go(func() { // it ends with the stream, which ends with this call
		for {
			r, err := st.Recv()
			if err != nil {
				feed.End(err)
				return
			}
			feed.Received(r.Received)
		}
	})
	for {
		piece, err := feed.Next()
		if err != nil {
			return err
		}
		if err := sendPiece(st, piece); err != nil {
			return err
		}
	}
}

// begin agrees with the standby on where it begins.
func (s *standbyService) begin(st grpc.BidiStreamingServer[psv1.FollowLogRequest, psv1.FollowLogResponse]) (*shard.Feed, error) {
	n := s.s.o.Node
	r, err := st.Recv()
	if err != nil {
		return nil, err
	}
	bases, shards, err := n.Bases()
	if err != nil {
		return nil, err
	}
	if r.Lsn > 0 {
		feed, err := n.Feed(st.Context(), shard.Place{LSN: r.Lsn, Salt: r.Salt})
		if err == nil {
			if err = st.Send(&psv1.FollowLogResponse{}); err != nil {
				err = errors.Join(err, feed.Close())
			}
		}
		if !errors.Is(err, ps.ErrGap) {
			return feed, err
		}
	}
	if err := st.Send(&psv1.FollowLogResponse{Bases: bases, Shards: uint32(shards)}); err != nil {
		return nil, err
	}
	if r, err = st.Recv(); err != nil {
		return nil, err
	}
	return n.Feed(st.Context(), shard.Place{Base: r.Base})
}

// sendPiece sends a piece in messages that are not too large.
func sendPiece(st grpc.BidiStreamingServer[psv1.FollowLogRequest, psv1.FollowLogResponse], p shard.Piece) error {
	for len(p.Bytes) > maxPart {
		if err := st.Send(&psv1.FollowLogResponse{Records: p.Bytes[:maxPart], More: true}); err != nil {
			return err
		}
		p.Bytes = p.Bytes[maxPart:]
	}
	return st.Send(&psv1.FollowLogResponse{Salt: p.Salt, Upto: p.Upto, Records: p.Bytes, End: p.End})
}

// Stand lets a node of a pair follow the log of the other process whenever it is the standby, until the context ends or the node is closed. t is the
// other process. Errors: those that waiting does not help against: [ps.ErrMismatch], [wire.ErrNotAdmitted], [wire.ErrVersion], [ps.ErrLayout].
func Stand(ctx context.Context, n *shard.Node, t Target, log *slog.Logger) (err error) {
	cc, err := wire.NewClient(t.Addr, t.Config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cc.Close()) }()
	wait, logged := minWait, ""
	for {
		run, err := n.AwaitStandby(ctx)
		if err != nil {
			return nil
		}
		began := time.Now()
		err = follow(ctx, run, n, psv1.NewStandbyClient(cc), &t)
		switch {
		case ctx.Err() != nil:
			return nil
		case run.Err() != nil:
			continue
		case failure.Lasting(err):
			return err
		}
		if time.Since(began) > maxWait {
			wait, logged = minWait, ""
		}
		if errors.Is(err, shard.ErrStartsOver) {
			log.InfoContext(ctx, "the shard goes to another state; its standby begins with that", "shard", t.Shard)
			wait = minWait
		} else if text := err.Error(); text != logged {
			logged = text
			log.WarnContext(ctx, "the standby does not follow", "shard", t.Shard, "addr", t.Addr, "err", err)
		}
		select {
		case <-time.After(wait):
		case <-run.Done():
		case <-ctx.Done():
		}
		wait = min(2*wait, maxWait)
	}
}

// follow follows the log in one stream.
func follow(ctx, run context.Context, n *shard.Node, c psv1.StandbyClient, t *Target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(run, cancel)()
	st, err := c.Follow(t.outgoing(ctx), callOptions()...)
	if err != nil {
		return from(ctx, t.String(), err)
	}
	at := n.FollowedTo()
	if err := st.Send(&psv1.FollowLogRequest{Lsn: at.LSN, Salt: at.Salt}); err != nil && !errors.Is(err, io.EOF) {
		return from(ctx, t.String(), err)
	}
	r, err := st.Recv()
	if err != nil {
		return from(ctx, t.String(), err)
	}
	if len(r.Bases) > 0 {
		base, err := n.StartOver(run, int(r.Shards), r.Bases)
		if err != nil {
			return err
		}
		if err := st.Send(&psv1.FollowLogRequest{Base: base}); err != nil && !errors.Is(err, io.EOF) {
			return from(ctx, t.String(), err)
		}
	}
	ack := func(upto uint64) error {
		if err := st.Send(&psv1.FollowLogRequest{Received: upto}); err != nil && !errors.Is(err, io.EOF) {
			return from(ctx, t.String(), err)
		}
		return nil // what broke the stream is what the next Recv returns
	}
	var records []byte
	for {
		r, err := st.Recv()
		if err != nil {
			return from(ctx, t.String(), err)
		}
		if records = append(records, r.Records...); len(records) > maxPiece {
			return fmt.Errorf("ps: %s: a piece of the log of more than %d bytes: %w", t, maxPiece, wire.ErrProtocol)
		}
		if r.More {
			continue
		}
		if err := n.Receive(run, shard.Piece{Salt: r.Salt, Upto: r.Upto, Bytes: records, End: r.End}, ack); err != nil {
			return err
		}
		if records = records[:0]; cap(records) > 4*maxPart {
			records = nil
		}
	}
}
