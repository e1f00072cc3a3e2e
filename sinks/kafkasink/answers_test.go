package kafkasink_test

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

	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
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

// manner is a broker of an older protocol that answers some requests as a test says: with the bytes of an answer's body. It
// has one topic, out, of one partition.
func manner(t testing.TB, answers map[int16][]byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	p, _ := strconv.Atoi(port)
	versions := bytesOf{}.i16(0).i32(6)
	for _, v := range [][3]int16{{0, 3, 8}, {3, 4, 4}, {17, 1, 1}, {18, 0, 0}, {19, 2, 4}, {36, 0, 0}} {
		versions = versions.i16(v[0]).i16(v[1]).i16(v[2])
	}
	usual := map[int16][]byte{
		0:  bytesOf{}.i32(1).str("out").i32(1).i32(0).i16(0).i64(5).i64(-1).i64(0).i32(0).i16(-1).i32(0),
		3:  bytesOf{}.i32(0).i32(1).i32(7).str(host).i32(int32(p)).i16(-1).str("c").i32(7).i32(1).i16(0).str("out").i8(0).i32(1).i16(0).i32(0).i32(7).i32(0).i32(0),
		17: bytesOf{}.i16(0).i32(1).str("PLAIN"),
		18: versions,
		19: bytesOf{}.i32(0).i32(1).str("out").i16(0).i16(-1),
		36: bytesOf{}.i16(0).i16(-1).i32(0),
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
func use(ctx context.Context, o kafkasink.Options) error {
	if err := kafkasink.CreateTopic(ctx, o, kafkasink.Topic{Partitions: 1}); err != nil {
		return err
	}
	p, err := kafkasink.NewProducer(o)
	if err != nil {
		return err
	}
	return errors.Join(p.Produce(ctx, kafkasink.Record{Value: []byte("v")}), p.Close())
}

// TestAnswersOfAnySize: an answer that announces more than it holds is an error within patience, whatever it answers,
// and no memory is taken for what it announces.
func TestAnswersOfAnySize(t *testing.T) { // not parallel: it measures
	const huge = 0x5d3eaaac
	for name, answers := range map[string]map[int16][]byte{
		"versions":           {18: bytesOf{}.i16(0).i32(huge)},
		"metadata brokers":   {3: bytesOf{}.i32(0).i32(huge)},
		"metadata topics":    {3: bytesOf{}.i32(0).i32(0).str("c").i32(7).i32(huge)},
		"produce topics":     {0: bytesOf{}.i32(huge)},
		"produce partitions": {0: bytesOf{}.i32(1).str("out").i32(huge)},
		"produce records":    {0: bytesOf{}.i32(1).str("out").i32(1).i32(0).i16(0).i64(5).i64(-1).i64(0).i32(huge)},
		"created topics":     {19: bytesOf{}.i32(0).i32(huge)},
		"handshake":          {17: bytesOf{}.i16(0).i32(huge)},
		"authentication":     {36: bytesOf{}.i16(0).i16(-1).i32(huge)},
		"another partition":  {0: bytesOf{}.i32(1).str("out").i32(1).i32(1).i16(0).i64(5).i64(-1).i64(0).i32(0).i16(-1).i32(0)},
		"nothing at all":     {0: nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := kafkasink.Options{Brokers: []string{manner(t, answers)}, Topic: "out", RetryFor: 150 * time.Millisecond, Timeout: time.Second}
			o.SASL = plain.Mechanism{Username: "u", Password: "p"}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := use(t.Context(), o)
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
		o := kafkasink.Options{Brokers: []string{manner(t, nil)}, Topic: "out", SASL: plain.Mechanism{Username: "u", Password: "p"}}
		if err := use(t.Context(), o); err != nil {
			t.Error(err)
		}
	})
	t.Run("no partitions", func(t *testing.T) {
		answer := bytesOf{}.i32(0).i32(0).str("c").i32(7).i32(1).i16(0).str("out").i8(0).i32(0)
		o := kafkasink.Options{Brokers: []string{manner(t, map[int16][]byte{3: answer})}, Topic: "out", RetryFor: 100 * time.Millisecond}
		if err := producer(t, o).Produce(t.Context(), kafkasink.Record{Partition: kafkasink.ByKey}); !errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	})
	t.Run("a record that the broker names", func(t *testing.T) {
		answer := bytesOf{}.i32(1).str("out").i32(1).i32(0).i16(87).i64(-1).i64(-1).i64(0).i32(1).i32(0).str("no key").str("a record is wrong").i32(0)
		o := kafkasink.Options{Brokers: []string{manner(t, map[int16][]byte{0: answer})}, Topic: "out"}
		err := use(t.Context(), o)
		if want := "record 0 of 1: [87] Invalid Record"; err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no key") {
			t.Errorf("%v, want %q", err, want)
		}
	})
}

// TestErrorsNameKeys: an error that a change of the configuration mends says of which key.
func TestErrorsNameKeys(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte{21, 3, 1, 0, 2, 2, 40}) // the alert of a listener that wants TLS
			_, _ = c.Read(make([]byte, 1<<10))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	for keys, want := range map[string]string{"": "set kafka.tls", "train.dead_letter.kafka.": "set train.dead_letter.kafka.tls"} {
		o := kafkasink.Options{Brokers: []string{ln.Addr().String()}, Topic: "out", RetryFor: 100 * time.Millisecond, Keys: keys}
		if _, err := producer(t, o).Partitions(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
