package kafkasource_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/kafkawire/wiretest"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// manner is a broker of Kafka 1.0's protocol that answers some requests as a test says: with the bytes of an answer's
// body. It has one topic, ratings, of one empty partition.
func manner(t testing.TB, answers map[int16][]byte) string {
	t.Helper()
	return wiretest.Broker(t, func(host string, p int32) map[int16][]byte {
		return map[int16][]byte{
			3: wiretest.Answer{}.I32(0).I32(1).I32(7).Str(host).I32(p).I16(-1).Str("c").I32(7). // metadata
														I32(1).I16(0).Str("ratings").I8(0).I32(1).I16(0).I32(0).I32(7).I32(0).I32(0),
			2:  wiretest.Answer{}.I32(0).I32(1).Str("ratings").I32(1).I32(0).I16(0).I64(-1).I64(0).I32(0),                                    // offsets
			1:  wiretest.Answer{}.I32(0).I16(0).I32(0).I32(1).Str("ratings").I32(1).I32(0).I16(0).I64(0).I64(0).I64(0).I32(0).I32(-1).I32(0), // fetch
			10: wiretest.Answer{}.I32(0).I16(0).I16(-1).I32(7).Str(host).I32(p),                                                              // coordinator
			17: wiretest.Answer{}.I16(0).I32(1).Str("PLAIN"),                                                                                 // handshake
			36: wiretest.Answer{}.I16(0).I16(-1).I32(0),                                                                                      // authentication
			8:  wiretest.Answer{}.I32(1).Str("ratings").I32(1).I32(0).I16(0),                                                                 // commit
			18: wiretest.Answer{}.I16(0).I32(10).I16(1).I16(4).I16(11).I16(2).I16(2).I16(4).I16(3).I16(4).I16(4).I16(8).I16(2).I16(2).I16(10).I16(1). // versions
																					I16(1).I16(17).I16(1).I16(1).I16(18).I16(0).I16(0).I16(23).I16(3).I16(3).I16(32).I16(1).I16(1).I16(36).I16(0).I16(0),
		}
	}, answers)
}

// use does everything that asks a broker for something, and calls opened before it waits for records.
func use(ctx context.Context, o kafkasource.Options, opened func()) error {
	s, err := kafkasource.New(o)
	if err != nil {
		return err
	}
	all, err := s.Splits(ctx)
	if err != nil {
		return err
	}
	if err := s.Acknowledge(ctx, map[string]pipeline.StoredSplit{"ratings-00000": {Position: 0}}); err != nil {
		return err
	}
	r, err := s.Open(ctx, &pipeline.Env{}, all[0], 0)
	if err != nil {
		return err
	}
	opened()
	blk, err := r.Next(ctx)
	if err == nil {
		blk.Release()
	}
	return errors.Join(err, r.Close())
}

// TestAnswersOfAnySize: an answer that announces more than it holds is an error within patience, whatever it answers,
// and no memory is taken for what it announces.
func TestAnswersOfAnySize(t *testing.T) { // not parallel: it measures
	const huge = 0x5d3eaaac
	// A good batch, after a hole that only the topic's configuration explains.
	batch := wiretest.Answer{}.I64(5).I32(61 - 12).I32(0).I8(2).I32(0).I16(0).I32(0).I64(0).I64(0).I64(-1).I16(-1).I32(-1).I32(0)
	checksum(batch)
	wiretest.TestAnswersOfAnySize(t, map[string]map[int16][]byte{
		"versions":                 {18: wiretest.Answer{}.I16(0).I32(huge)},
		"metadata brokers":         {3: wiretest.Answer{}.I32(0).I32(huge)},
		"metadata topics":          {3: wiretest.Answer{}.I32(0).I32(0).Str("c").I32(7).I32(huge)},
		"offsets topics":           {2: wiretest.Answer{}.I32(0).I32(huge)},
		"offsets partitions":       {2: wiretest.Answer{}.I32(0).I32(1).Str("ratings").I32(huge)},
		"coordinator host":         {10: wiretest.Answer{}.I32(0).I16(0).I16(-1).I32(7).I16(0x7fff)},
		"commit":                   {8: wiretest.Answer{}.I32(huge)},
		"handshake":                {17: wiretest.Answer{}.I16(0).I32(huge)},
		"authentication":           {36: wiretest.Answer{}.I16(0).I16(-1).I32(huge)},
		"fetch topics":             {1: wiretest.Answer{}.I32(0).I16(0).I32(0).I32(huge)},
		"fetch transactions":       {1: wiretest.Answer{}.I32(0).I16(0).I32(0).I32(1).Str("ratings").I32(1).I32(0).I16(0).I64(9).I64(9).I64(0).I32(huge)},
		"fetch records":            {1: wiretest.Answer{}.I32(0).I16(0).I32(0).I32(1).Str("ratings").I32(1).I32(0).I16(0).I64(9).I64(9).I64(0).I32(0).I32(-1).I32(huge)},
		"configuration":            {1: append(wiretest.Answer{}.I32(0).I16(0).I32(0).I32(1).Str("ratings").I32(1).I32(0).I16(0).I64(9).I64(9).I64(0).I32(0).I32(-1).I32(int32(len(batch))), batch...), 32: wiretest.Answer{}.I32(0).I32(huge)},
		"nothing at all, commit":   {8: nil},
		"nothing at all, versions": {18: nil},
	}, manner, func(ctx context.Context, addr string) error {
		o := options(addr)
		o.RetryFor, o.MaxWait, o.GroupID = 150*time.Millisecond, 10*time.Millisecond, "g"
		o.SASL = &kafkasource.SASL{Mechanism: kafkasource.Plain, User: "u", Password: "p"}
		return use(ctx, o, func() {})
	}, pipeline.ErrUnavailable)
	t.Run("good ones", func(t *testing.T) {
		o := options(manner(t, nil))
		o.GroupID, o.SASL = "g", &kafkasource.SASL{Mechanism: kafkasource.Plain, User: "u", Password: "p"}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		defer cancel(nil)
		opened := func() { time.AfterFunc(300*time.Millisecond, func() { cancel(enough) }) } // in which an answer that is wrong would be met
		if err := use(ctx, o, opened); !errors.Is(err, enough) || strings.Contains(err.Error(), "kafkasource") {
			t.Errorf("%v, want to wait for records", err)
		}
	})
}
