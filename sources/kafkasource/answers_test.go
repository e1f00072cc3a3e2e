package kafkasource_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// bytesOf builds what a broker sends.
type bytesOf []byte

func (b bytesOf) i8(v int8) bytesOf   { return append(b, byte(v)) }
func (b bytesOf) i16(v int16) bytesOf { return binary.BigEndian.AppendUint16(b, uint16(v)) }
func (b bytesOf) i32(v int32) bytesOf { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func (b bytesOf) i64(v int64) bytesOf { return binary.BigEndian.AppendUint64(b, uint64(v)) }
func (b bytesOf) str(s string) bytesOf {
	return append(b.i16(int16(len(s))), s...)
}

// manner is a broker of Kafka 1.0's protocol that answers some requests as a test says: with the bytes of an answer's
// body. It has one topic, ratings, of one empty partition.
func manner(t testing.TB, answers map[int16][]byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	p, _ := strconv.Atoi(port)
	usual := map[int16][]byte{
		3: bytesOf{}.i32(0).i32(1).i32(7).str(host).i32(int32(p)).i16(-1).str("c").i32(7). // metadata
													i32(1).i16(0).str("ratings").i8(0).i32(1).i16(0).i32(0).i32(7).i32(0).i32(0),
		2:  bytesOf{}.i32(0).i32(1).str("ratings").i32(1).i32(0).i16(0).i64(-1).i64(0).i32(0),                                    // offsets
		1:  bytesOf{}.i32(0).i16(0).i32(0).i32(1).str("ratings").i32(1).i32(0).i16(0).i64(0).i64(0).i64(0).i32(0).i32(-1).i32(0), // fetch
		10: bytesOf{}.i32(0).i16(0).i16(-1).i32(7).str(host).i32(int32(p)),                                                       // coordinator
		17: bytesOf{}.i16(0).i32(1).str("PLAIN"),                                                                                 // handshake
		36: bytesOf{}.i16(0).i16(-1).i32(0),                                                                                      // authentication
		8:  bytesOf{}.i32(1).str("ratings").i32(1).i32(0).i16(0),                                                                 // commit
		18: bytesOf{}.i16(0).i32(10).i16(1).i16(4).i16(11).i16(2).i16(2).i16(4).i16(3).i16(4).i16(4).i16(8).i16(2).i16(2).i16(10).i16(1). // versions
																			i16(1).i16(17).i16(1).i16(1).i16(18).i16(0).i16(0).i16(23).i16(3).i16(3).i16(32).i16(1).i16(1).i16(36).i16(0).i16(0),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for {
					head := make([]byte, 12)
					if _, err := io.ReadFull(c, head); err != nil {
						return
					}
					if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head))-8); err != nil {
						return
					}
					key := int16(binary.BigEndian.Uint16(head[4:]))
					body, ok := answers[key]
					if !ok {
						body = usual[key]
					}
					frame := append(bytesOf{}.i32(int32(len(body)+4)), head[8:12]...)
					if _, err := c.Write(append(frame, body...)); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

// use does everything that asks a broker for something.
func use(ctx context.Context, o kafkasource.Options) error {
	s, err := kafkasource.New(o)
	if err != nil {
		return err
	}
	all, err := s.Splits(ctx)
	if err != nil {
		return err
	}
	if err := s.Acknowledge(ctx, map[string]pipeline.Position{"ratings-00000": 0}); err != nil {
		return err
	}
	r, err := s.Open(ctx, &pipeline.Env{}, all[0], 0)
	if err != nil {
		return err
	}
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
	// A good batch, behind a hole that only the topic's configuration explains.
	batch := bytesOf{}.i64(5).i32(61 - 12).i32(0).i8(2).i32(0).i16(0).i32(0).i64(0).i64(0).i64(-1).i16(-1).i32(-1).i32(0)
	checksum(batch)
	for name, answers := range map[string]map[int16][]byte{
		"versions":                 {18: bytesOf{}.i16(0).i32(huge)},
		"metadata brokers":         {3: bytesOf{}.i32(0).i32(huge)},
		"metadata topics":          {3: bytesOf{}.i32(0).i32(0).str("c").i32(7).i32(huge)},
		"offsets topics":           {2: bytesOf{}.i32(0).i32(huge)},
		"offsets partitions":       {2: bytesOf{}.i32(0).i32(1).str("ratings").i32(huge)},
		"coordinator host":         {10: bytesOf{}.i32(0).i16(0).i16(-1).i32(7).i16(0x7fff)},
		"commit":                   {8: bytesOf{}.i32(huge)},
		"handshake":                {17: bytesOf{}.i16(0).i32(huge)},
		"authentication":           {36: bytesOf{}.i16(0).i16(-1).i32(huge)},
		"fetch topics":             {1: bytesOf{}.i32(0).i16(0).i32(0).i32(huge)},
		"fetch transactions":       {1: bytesOf{}.i32(0).i16(0).i32(0).i32(1).str("ratings").i32(1).i32(0).i16(0).i64(9).i64(9).i64(0).i32(huge)},
		"fetch records":            {1: bytesOf{}.i32(0).i16(0).i32(0).i32(1).str("ratings").i32(1).i32(0).i16(0).i64(9).i64(9).i64(0).i32(0).i32(-1).i32(huge)},
		"configuration":            {1: append(bytesOf{}.i32(0).i16(0).i32(0).i32(1).str("ratings").i32(1).i32(0).i16(0).i64(9).i64(9).i64(0).i32(0).i32(-1).i32(int32(len(batch))), batch...), 32: bytesOf{}.i32(0).i32(huge)},
		"nothing at all, commit":   {8: nil},
		"nothing at all, versions": {18: nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(manner(t, answers))
			o.RetryFor, o.MaxWait, o.GroupID = 150*time.Millisecond, 10*time.Millisecond, "g"
			o.SASL = &kafkasource.SASL{Mechanism: kafkasource.Plain, User: "u", Password: "p"}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := use(ctx, o)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, pipeline.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
	t.Run("good ones", func(t *testing.T) {
		o := options(manner(t, nil))
		o.GroupID, o.SASL = "g", &kafkasource.SASL{Mechanism: kafkasource.Plain, User: "u", Password: "p"}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := use(ctx, o); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "kafkasource") {
			t.Errorf("%v, want to wait for records", err)
		}
	})
}
