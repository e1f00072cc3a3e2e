package kafkasink_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/monolith-go/monolith/internal/kafkawire/wiretest"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

// manner is a broker of an older protocol that answers some requests as a test says: with the bytes of an answer's body. It
// has one topic, out, of one partition.
func manner(t testing.TB, answers map[int16][]byte) string {
	t.Helper()
	versions := wiretest.Answer{}.I16(0).I32(6)
	for _, v := range [][3]int16{{0, 3, 8}, {3, 4, 4}, {17, 1, 1}, {18, 0, 0}, {19, 2, 4}, {36, 0, 0}} {
		versions = versions.I16(v[0]).I16(v[1]).I16(v[2])
	}
	return wiretest.Broker(t, func(host string, p int32) map[int16][]byte {
		return map[int16][]byte{
			0:  wiretest.Answer{}.I32(1).Str("out").I32(1).I32(0).I16(0).I64(5).I64(-1).I64(0).I32(0).I16(-1).I32(0),
			3:  wiretest.Answer{}.I32(0).I32(1).I32(7).Str(host).I32(p).I16(-1).Str("c").I32(7).I32(1).I16(0).Str("out").I8(0).I32(1).I16(0).I32(0).I32(7).I32(0).I32(0),
			17: wiretest.Answer{}.I16(0).I32(1).Str("PLAIN"),
			18: versions,
			19: wiretest.Answer{}.I32(0).I32(1).Str("out").I16(0).I16(-1),
			36: wiretest.Answer{}.I16(0).I16(-1).I32(0),
		}
	}, answers)
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
	wiretest.TestAnswersOfAnySize(t, map[string]map[int16][]byte{
		"versions":           {18: wiretest.Answer{}.I16(0).I32(huge)},
		"metadata brokers":   {3: wiretest.Answer{}.I32(0).I32(huge)},
		"metadata topics":    {3: wiretest.Answer{}.I32(0).I32(0).Str("c").I32(7).I32(huge)},
		"produce topics":     {0: wiretest.Answer{}.I32(huge)},
		"produce partitions": {0: wiretest.Answer{}.I32(1).Str("out").I32(huge)},
		"produce records":    {0: wiretest.Answer{}.I32(1).Str("out").I32(1).I32(0).I16(0).I64(5).I64(-1).I64(0).I32(huge)},
		"created topics":     {19: wiretest.Answer{}.I32(0).I32(huge)},
		"handshake":          {17: wiretest.Answer{}.I16(0).I32(huge)},
		"authentication":     {36: wiretest.Answer{}.I16(0).I16(-1).I32(huge)},
		"another partition":  {0: wiretest.Answer{}.I32(1).Str("out").I32(1).I32(1).I16(0).I64(5).I64(-1).I64(0).I32(0).I16(-1).I32(0)},
		"nothing at all":     {0: nil},
	}, manner, func(ctx context.Context, addr string) error {
		return use(ctx, kafkasink.Options{
			Brokers: []string{addr}, Topic: "out", RetryFor: 150 * time.Millisecond, Timeout: time.Second,
			SASL: plain.Mechanism{Username: "u", Password: "p"},
		})
	}, pipeline.ErrUnavailable)
	t.Run("good ones", func(t *testing.T) {
		o := kafkasink.Options{Brokers: []string{manner(t, nil)}, Topic: "out", SASL: plain.Mechanism{Username: "u", Password: "p"}}
		if err := use(t.Context(), o); err != nil {
			t.Error(err)
		}
	})
	t.Run("no partitions", func(t *testing.T) {
		answer := wiretest.Answer{}.I32(0).I32(0).Str("c").I32(7).I32(1).I16(0).Str("out").I8(0).I32(0)
		o := kafkasink.Options{Brokers: []string{manner(t, map[int16][]byte{3: answer})}, Topic: "out", RetryFor: 100 * time.Millisecond}
		if err := producer(t, o).Produce(t.Context(), kafkasink.Record{Partition: kafkasink.ByKey}); !errors.Is(err, pipeline.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
	})
	t.Run("a record that the broker names", func(t *testing.T) {
		answer := wiretest.Answer{}.I32(1).Str("out").I32(1).I32(0).I16(87).I64(-1).I64(-1).I64(0).I32(1).I32(0).Str("no key").Str("a record is wrong").I32(0)
		o := kafkasink.Options{Brokers: []string{manner(t, map[int16][]byte{0: answer})}, Topic: "out"}
		err := use(t.Context(), o)
		if want := "record 0 of 1: [87] Invalid Record"; err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no key") {
			t.Errorf("%v, want %q", err, want)
		}
	})
}

// TestErrorsNameKeys: an error that a change of the configuration fixes says of which key.
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
		if _, err := producer(t, o).Partitions(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
