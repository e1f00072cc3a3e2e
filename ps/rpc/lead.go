package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// Lead makes a process of shard 0, where that has two, coordinate whenever its node is in charge, until the context ends or the node is closed. open opens the cluster of a term, with the node as
// [coordinator.Options].First; its peers say the term and whether shard 0 has its lease ([Coordinator]). What a cluster of a term before has begun, nobody ends: the next one takes the shards as they are, as after a restart
// of shard 0. Errors: those of open that waiting does not help against.
func Lead(ctx context.Context, s *Server, open func(ctx context.Context, term uint64) (*coordinator.Cluster, error), log *slog.Logger) error {
	logged := ""
	for {
		charge, term, err := s.o.Node.AwaitCharge(ctx)
		if err != nil {
			return nil //nolint:nilerr // the context, or the node, has ended
		}
		err = s.lead(ctx, charge, term, open, log)
		switch {
		case ctx.Err() != nil || errors.Is(err, ps.ErrClosed):
			return nil //nolint:nilerr // it is over
		case charge.Err() != nil || s.o.Node.Refuses() != nil: // what it says is of before
			continue
		case failure.Lasting(err):
			return err
		}
		if text := fmt.Sprint(err); text != logged {
			logged = text
			log.WarnContext(ctx, "shard 0 does not coordinate", "term", term, "err", err)
		}
		select {
		case <-time.After(maxWait):
		case <-charge.Done():
		case <-ctx.Done():
		}
	}
}

// lead coordinates in one term.
func (s *Server) lead(ctx, charge context.Context, term uint64, open func(ctx context.Context, term uint64) (*coordinator.Cluster, error), log *slog.Logger) (err error) {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(charge, cancel)()
	c, err := open(run, term)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "this process coordinates", "term", term)
	s.Coordinate(c)
	<-run.Done()
	s.Coordinate(nil)
	log.InfoContext(ctx, "this process does not coordinate any more", "term", term)
	return c.Close(context.WithoutCancel(ctx))
}
