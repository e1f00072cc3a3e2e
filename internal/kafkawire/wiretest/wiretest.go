// Package wiretest is a broker that answers what a test says, byte by byte: what no real broker sends.
package wiretest

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
)

// TB is the part of testing.TB used here.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

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
func Broker(t TB, usual func(host string, port int32) map[int16][]byte, special map[int16][]byte) string {
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
