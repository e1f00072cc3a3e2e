// Package wiretest is a broker that answers what a test says, byte by byte: what no real broker sends.
package wiretest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// Answer builds the body of an answer by appending to it, big-endian as Kafka's protocol has it.
type Answer []byte

// I8 appends one byte.
func (a Answer) I8(v int8) Answer { return append(a, byte(v)) }

// I16 appends two bytes.
func (a Answer) I16(v int16) Answer { return binary.BigEndian.AppendUint16(a, uint16(v)) }

// I32 appends four bytes.
func (a Answer) I32(v int32) Answer { return binary.BigEndian.AppendUint32(a, uint32(v)) }

// I64 appends eight bytes.
func (a Answer) I64(v int64) Answer { return binary.BigEndian.AppendUint64(a, uint64(v)) }

// Str appends a string after its length in two bytes.
func (a Answer) Str(s string) Answer { return append(a.I16(int16(len(s))), s...) }

// Broker listens on the loopback interface until the test ends and returns its address. A request is answered by its API
// key: with what special has for it, otherwise with what usual, which is given the broker's own address, has.
func Broker(t testing.TB, usual func(host string, port int32) map[int16][]byte, special map[int16][]byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(ln.Addr().String())
	p, _ := strconv.Atoi(port)
	answers := usual(host, int32(p))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c, answers, special)
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

func serve(c net.Conn, usual, special map[int16][]byte) {
	defer func() { _ = c.Close() }()
	for {
		head := make([]byte, 12) // size, API key, version, correlation
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head))-8); err != nil {
			return
		}
		key := int16(binary.BigEndian.Uint16(head[4:]))
		body, ok := special[key]
		if !ok {
			body = usual[key]
		}
		frame := append(Answer{}.I32(int32(len(body)+4)), head[8:12]...)
		if _, err := c.Write(append(frame, body...)); err != nil {
			return
		}
	}
}

// TestAnswersOfAnySize uses brokers that answer some requests, by API key, as each case says: with what announces more than it
// holds, or nothing. Each use has to end with an error that is want, and not by the context, and no memory may be taken for what is
// announced. Nothing else may run meanwhile: it measures.
func TestAnswersOfAnySize(t *testing.T, cases map[string]map[int16][]byte, broker func(t testing.TB, answers map[int16][]byte) string, use func(ctx context.Context, addr string) error, want error) {
	for name, answers := range cases {
		t.Run(name, func(t *testing.T) {
			addr := broker(t, answers)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // to end a hang
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := use(ctx, addr)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}
