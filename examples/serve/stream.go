package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// topic has the clicks: lines of user, item and 0 or 1.
const topic = "clicks"

// season is what people like.
type season int32

const (
	summer season = iota
	winter
)

// String names the season.
func (s season) String() string { return [...]string{"summer", "winter"}[s] }

func (s season) liked() string    { return [...]string{"ice cream", "soup"}[s] }
func (s season) disliked() string { return (winter - s).liked() }

// The shares of those who click.
const (
	clicksOnLiked    = 0.85
	clicksOnDisliked = 0.1
)

// stream makes clicks. Its methods may overlap.
type stream struct {
	now     atomic.Int32
	trained atomic.Int64 // examples
}

func (s *stream) season() season { return season(s.now.Load()) }

// turn makes it the other season.
func (s *stream) turn() { s.now.Store(int32(winter - s.season())) }

// observe counts what was trained on.
func (s *stream) observe(o trainstep.Observation) { s.trained.Add(int64(o.Scores.Rows)) }

// publish sends clicks at a rate until ctx ends. It waits when training is more than a second behind, as people do for a page.
func (s *stream) publish(ctx context.Context, addr string, rate int) error {
	p, err := kafkasink.NewProducer(kafkasink.Options{Brokers: []string{addr}, Topic: topic})
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // what was acknowledged is there
	const perSecond = 10
	rng := rand.New(rand.NewPCG(1, 2))
	records := make([]kafkasink.Record, max(1, rate/perSecond))
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for sent := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if sent-s.trained.Load() > int64(max(rate, 1000)) {
			continue
		}
		now := s.season()
		for i := range records {
			item, share := now.liked(), clicksOnLiked
			if rng.IntN(2) == 0 {
				item, share = now.disliked(), clicksOnDisliked
			}
			click := 0
			if rng.Float64() < share {
				click = 1
			}
			records[i] = kafkasink.Record{Value: fmt.Appendf(nil, "%d,%s,%d", rng.IntN(100), item, click)}
		}
		if err := p.Produce(ctx, records...); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		sent += int64(len(records))
	}
}
