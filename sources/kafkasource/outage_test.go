package kafkasource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/kafkawire/wiretest"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// nowhere returns an address that refuses connections.
func nowhere(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

func TestBrokerDownAtStart(t *testing.T) {
	t.Parallel()
	a, b := nowhere(t), nowhere(t)
	o := options(a, b)
	o.RetryFor = 200 * time.Millisecond
	s := source(t, o)
	_, err := s.Splits(t.Context())
	if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Splits: %v", err)
	}
	_, err = s.Open(t.Context(), nil, pipeline.Split{Name: "ratings-00000", End: pipeline.NoPosition}, 0)
	if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), a) {
		t.Errorf("Open: %v", err)
	}
	o.GroupID = "g"
	err = source(t, o).Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"ratings-00000": {Position: 1}})
	if !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("Acknowledge: %v", err)
	}
}

func TestOneLiveAddressIsEnough(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	if got := splits(t, source(t, options(nowhere(t), b.Addrs()[0]))); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// TestSilentBroker: a listener that accepts and says nothing must not hold a caller for longer than Timeout, nor at all
// once its context ends.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	o := options(ln.Addr().String())
	o.Timeout, o.RetryFor = 100*time.Millisecond, 150*time.Millisecond
	_, err = source(t, o).Splits(t.Context())
	if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("%v", err)
	}
	o.Timeout, o.RetryFor = time.Hour, time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if _, err = source(t, o).Splits(ctx); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Dir: t.TempDir()})
	produce(t, b, "ratings", 0, broker.Batch{Size: 3}, numbered("a", 30)...)
	log := &buffer{}
	o := options(b.Addrs()...)
	r := open(t, source(t, o), pipeline.NoPosition, &pipeline.Env{Logger: log.logger()})
	r.take(t, 30)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		log.waitFor(t, "does not answer as it should", 1)
	}()
	if _, err := r.next(ctx, t); !errors.Is(err, context.Canceled) {
		t.Fatalf("while the broker is down: %v", err)
	}
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("b", 5)...)
	if got := values(r.take(t, 5)); got != "b0 b1 b2 b3 b4" {
		t.Error(got)
	}
	text := log.String()
	if strings.Count(text, "level=WARN") != 1 || strings.Count(text, "kafka answers again") != 1 {
		t.Errorf("want one warning and one line about its end:\n%s", text)
	}
}

// TestAnOutageIsLoggedOnce: one line for all partitions of a source, and one when the last of them has its answer; who lists splits again meanwhile, of a source of its own too, adds none.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	const partitions = 3
	b := start(t, broker.Options{Dir: t.TempDir(), Topics: map[string]int{"ratings": partitions}})
	log := &buffer{}
	o := options(b.Addrs()...)
	o.RetryFor, o.Logger = time.Hour, log.logger()
	s := source(t, o)
	all := splits(t, s)
	var readers []rig
	grows := source(t, o) // a job has one that looks for partitions that are new
	splits(t, grows)
	for _, split := range all {
		readers = append(readers, openSplit(t, s, split, split.Start, &pipeline.Env{Logger: log.logger()}))
	}
	for outage := 1; outage <= 2; outage++ {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		log.waitFor(t, "does not answer as it should", outage)
		listed := make(chan error)
		go func() {
			_, err := s.Splits(t.Context())
			_, again := grows.Splits(t.Context())
			listed <- errors.Join(err, again)
		}()
		lasting, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if _, err := grows.Splits(lasting); err == nil {
			t.Error("splits are listed without a broker")
		}
		cancel()
		if err := b.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		for p, r := range readers {
			produce(t, b, "ratings", p, broker.Batch{}, numbered("b", 5)...)
			if got := values(r.take(t, 5)); got != "b0 b1 b2 b3 b4" {
				t.Error(got)
			}
		}
		if err := <-listed; err != nil {
			t.Error(err)
		}
		log.waitFor(t, "kafka answers again", outage)
		text := log.String()
		if away, back := strings.Count(text, "does not answer"), strings.Count(text, "answers again"); away != outage || back != outage || strings.Count(text, "partition=") > 0 {
			t.Errorf("%d lines that the broker is away and %d that it is back after %d outages:\n%s", away, back, outage, text)
		}
		for line := range strings.Lines(text) {
			if away := strings.Contains(line, "does not answer"); !strings.Contains(line, "topic=ratings") || !strings.Contains(line, " partitions=") || away && !strings.Contains(line, fmt.Sprintf(" of=%d ", partitions)) {
				t.Errorf("%s: want the topic and the number of partitions", line)
			}
		}
	}
}

// TestBrokerThatComesLate: before the broker there is one line that it is waited for, and one when it is there.
func TestBrokerThatComesLate(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Dir: t.TempDir()})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	o := options(b.Addrs()...)
	o.RetryFor, o.Logger = time.Hour, log.logger()
	listed := make(chan error)
	go func() {
		_, err := source(t, o).Splits(t.Context())
		listed <- err
	}()
	log.waitFor(t, "does not answer as it should", 1)
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-listed; err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, "kafka answers again") != 1 {
		t.Errorf("want one line when it is waited for and one when it is there:\n%s", text)
	}
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 3)...)
	o := options(b.Addrs()...)
	split := splits(t, source(t, o))[0]
	o.RetryFor = 300 * time.Millisecond
	r := openSplit(t, source(t, o), split, split.Start, nil)
	r.take(t, 3)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := r.fails(t)
	if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), b.Addrs()[0]) || !strings.Contains(err.Error(), "in/ratings-00000 position 3") || !strings.Contains(err.Error(), "source.kafka.retry_for") {
		t.Errorf("%v", err)
	}
	if _, again := r.Next(t.Context()); !errors.Is(again, pipeline.ErrUnavailable) {
		t.Errorf("again: %v", again)
	}
}

// TestFaultsThatPass injects what brokers answer during elections, disk failures and slow metadata.
func TestFaultsThatPass(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.KafkaStorageError,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.ReplicaNotAvailable, kerr.OffsetNotAvailable, kerr.UnknownServerError,
	} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{})
			produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 3)...)
			o := options(b.Addrs()...)
			o.End.Place = kafkasource.Latest
			s := source(t, o)
			split := splits(t, s)[0]
			faults := b.Cluster.Fault(
				kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "ratings", Err: e, Count: 2},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, TopicID: b.Cluster.TopicInfo("ratings").TopicID, Err: e, Count: 2},
				kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "ratings", Err: e, Count: 1},
			)
			log := &buffer{}
			r := openSplit(t, s, split, 0, &pipeline.Env{Logger: log.logger()})
			if got := values(r.take(t, -1)); got != "a0 a1 a2" {
				t.Error(got)
			}
			if faults.Hits() < 3 {
				t.Errorf("%d faults were met", faults.Hits())
			}
		})
	}
}

func TestFaultsThatStay(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 3)...)
	o := options(b.Addrs()...)
	o.RetryFor = time.Hour // what stays is not waited out
	s := source(t, o)
	split := splits(t, s)[0]
	b.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, TopicID: b.Cluster.TopicInfo("ratings").TopicID, Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err := openSplit(t, s, split, 0, nil).fails(t)
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "Topic Authorization Failed") {
		t.Errorf("%v", err)
	}
}

func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Brokers: 3})
	o := options(b.Addrs()...)
	r := open(t, source(t, o), pipeline.NoPosition, nil)
	for i := range 6 {
		if err := b.Cluster.MoveTopicPartition("ratings", 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
		produce(t, b, "ratings", 0, broker.Batch{}, numbered(fmt.Sprintf("%d-", i), 2)...)
		if got, want := values(r.take(t, 2)), fmt.Sprintf("%d-0 %d-1", i, i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestThrottled: a broker over quota answers without partitions and asks to be left alone.
func TestThrottled(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 3)...)
	var answered atomic.Int64
	b.Cluster.ControlKey(int16(kmsg.Fetch), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster.KeepControl()
		if answered.Add(1) > 2 {
			return nil, nil, false
		}
		r := q.(*kmsg.FetchRequest).ResponseKind().(*kmsg.FetchResponse)
		r.ThrottleMillis = 100
		return r, nil, true
	})
	began := time.Now()
	r := open(t, source(t, options(b.Addrs()...)), pipeline.NoPosition, nil)
	if got := values(r.take(t, 3)); got != "a0 a1 a2" {
		t.Error(got)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("two throttles of 100ms were waited out in %s", took)
	}
}

// TestSilentListenerIsWaitedForAsLongAsSaid: retry_for bounds the whole start, also where each try could take longer, and a
// attempt that ends sooner names the address all the same.
func TestSilentListenerIsWaitedForAsLongAsSaid(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // whose connections nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	addr := ln.Addr().String()
	o := options(addr)
	o.RetryFor, o.Timeout = 1500*time.Millisecond, 10*time.Minute
	began := time.Now()
	_, err = source(t, o).Splits(t.Context())
	if took := time.Since(began); took < o.RetryFor || took > o.Timeout/2 {
		t.Errorf("given up after %v", took)
	}
	if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
	o.RetryFor = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err = source(t, o).Splits(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
}

// TestOtherListeners: what answers at a wrong port is named, with what to do.
func TestOtherListeners(t *testing.T) {
	t.Parallel()
	serve := func(f func(c net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				f(c)
				_ = c.Close()
			}
		}()
		return ln.Addr().String()
	}
	first := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	web := serve(func(c net.Conn) {
		first(c)
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request"))
	})
	alert := serve(func(c net.Conn) { first(c); _, _ = c.Write([]byte{0x15, 3, 1, 0, 2, 2, 70, 0, 0, 0, 0}) })
	plain := start(t, broker.Options{}).Addrs()[0]
	hangup := serve(first)
	silent := serve(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for _, c := range []struct {
		addr string
		tls  bool
		want string
	}{
		{web, false, "an HTTP server answers here"},
		{web, true, "speaks no TLS: take source.kafka.tls out"},
		{alert, false, "the listener wants TLS: set source.kafka.tls"},
		{hangup, false, "source.kafka.tls"},
		{plain, true, "take source.kafka.tls out"},
		{hangup, true, "take source.kafka.tls out"},
		{silent, false, "does the listener want TLS (source.kafka.tls), or is it none of Kafka's?"},
	} {
		o := options(c.addr)
		o.RetryFor, o.Timeout = 100*time.Millisecond, time.Second
		if c.tls {
			o.TLS = &kafkasource.TLS{}
		}
		says := func(err error) bool {
			return strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), c.addr)
		}
		if c.addr == alert {
			o.RetryFor = time.Hour // it is an answer, which is not waited out
		}
		if err := refusal(t, o, says); err == nil || !says(err) || errors.Is(err, pipeline.ErrConfig) != (c.addr == alert || c.tls && (c.addr == web)) && c.addr != plain {
			t.Errorf("%s tls %v: %v, want %s", c.addr, c.tls, err, c.want)
		}
	}
}

// TestLearntAddress: a broker answers, and the address that it has for the partition's leader is none from here, which the error says.
func TestLearntAddress(t *testing.T) {
	t.Parallel()
	gone := nowhere(t)
	host, port, err := net.SplitHostPort(gone)
	if err != nil {
		t.Fatal(err)
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	addr := manner(t, map[int16][]byte{
		3: wiretest.Answer{}.I32(0).I32(1).I32(7).Str(host).I32(int32(p)).I16(-1).Str("c").I32(7).I32(1).I16(0).Str("ratings").I8(0).I32(1).I16(0).I32(0).I32(7).I32(0).I32(0),
	})
	o := options(addr)
	o.RetryFor = 50 * time.Millisecond
	_, err = source(t, o).Splits(t.Context())
	if want := addr + " answered, and says that a broker is at " + gone + " (its advertised.listeners)"; !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	o = options(gone) // which was given
	o.RetryFor = 50 * time.Millisecond
	if _, err = source(t, o).Splits(t.Context()); err == nil || strings.Contains(err.Error(), "advertised") {
		t.Errorf("%v", err)
	}
}

func TestGarbageAnswers(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request"))
			_ = c.Close()
		}
	}()
	o := options(ln.Addr().String())
	o.RetryFor, o.Timeout = 100*time.Millisecond, 300*time.Millisecond
	if _, err := source(t, o).Splits(t.Context()); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
