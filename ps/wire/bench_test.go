package wire_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// The transports that are compared. framing is the control: lengths and bytes over TCP with writev and ReadFull, without a
// shard. grpc-again is grpc once more: what differs between the two is noise.
var transports = []string{"inprocess", "framing", "grpc", "grpc-again", "unix"}

var benchRows = []int{512, 4096, 32768}

const benchDim = 16

// benchConn makes a conn to a shard that has a row for each of keys.
func benchConn(b *testing.B, transport string, keys []int64) ps.Conn {
	b.Helper()
	var conn ps.Conn
	c, err := coordinator.Open(b.Context(), coordinator.Options{
		Layout: &param.Layout{Tables: []param.Table{{Name: "t", Segments: []param.Segment{
			{Name: "v", Dim: benchDim, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.05}},
		}}}},
		WrapConn: func(_ string, _ int, c ps.Conn) ps.Conn { conn = c; return c },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	if _, err := c.Client(b.Context(), "w"); err != nil {
		b.Fatal(err)
	}
	if transport != "inprocess" {
		network := "tcp"
		if transport == "unix" {
			network = "unix"
		}
		r := serve(b, newHost(), remoteOptions{network: network})
		b.Cleanup(func() { r.close(b) })
		conn = r.wrap(b, "w", 0, conn)
	}
	u := benchUpdate(keys)
	if _, _, err := conn.Acquire(b.Context(), ps.SplitID{Source: "s", Split: "x"}, 1); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Stage(b.Context(), nil, 1, u); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Control(b.Context(), commitTo(u.To)); err != nil {
		b.Fatal(err)
	}
	return conn
}

func commitTo(to int64) []ps.Control {
	return []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, To: to}}
}

func benchKeys(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(uint64(i) * 0x9e3779b97f4a7c15)
	}
	return out
}

func benchUpdate(keys []int64) *param.Update {
	u := &param.Update{
		Source: "s", Split: "x", To: 1, LR: 1, NumRows: len(keys),
		Keys: [][]int64{keys}, Counts: [][]uint32{make([]uint32, len(keys))}, Grads: [][]float32{make([]float32, len(keys)*benchDim)},
	}
	for i := range u.Counts[0] {
		u.Counts[0][i] = 1
	}
	for i := range u.Grads[0] {
		u.Grads[0][i] = 0.01
	}
	return u
}

// measure runs f, which moves so many rows and bytes, both ways together.
func measure(b *testing.B, rows, size int, f func()) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	f()
	cpu := testbed.CPUSeconds()
	for b.Loop() {
		f()
	}
	cpu = testbed.CPUSeconds() - cpu
	b.ReportMetric(float64(b.N)*float64(rows)/b.Elapsed().Seconds(), "rows/s")
	if cpu > 0 {
		b.ReportMetric(float64(b.N)*float64(size)/1e6/cpu, "MB/cpu-s")
	}
}

// BenchmarkLookup fetches rows. Both ends are in this process, so the processor time is that of both.
func BenchmarkLookup(b *testing.B) {
	for _, transport := range transports {
		for _, n := range benchRows {
			b.Run(fmt.Sprintf("transport=%s/rows=%d/dim=%d", transport, n, benchDim), func(b *testing.B) {
				if transport == "framing" {
					framing(b, n, 8*n, 4*n*benchDim)
					return
				}
				keys := benchKeys(n)
				conn := benchConn(b, transport, keys)
				rows := &param.Rows{Keys: [][]int64{keys}, Values: [][]float32{make([]float32, n*benchDim)}}
				measure(b, n, n*(8+4*benchDim), func() {
					if _, err := conn.Lookup(b.Context(), nil, rows); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}

// BenchmarkStage pushes gradients, with the commit of the push before in front.
func BenchmarkStage(b *testing.B) {
	for _, transport := range transports {
		for _, n := range benchRows {
			b.Run(fmt.Sprintf("transport=%s/rows=%d/dim=%d", transport, n, benchDim), func(b *testing.B) {
				if transport == "framing" {
					framing(b, n, n*(12+4*benchDim), 8)
					return
				}
				conn, u, ctl := benchConn(b, transport, benchKeys(n)), benchUpdate(benchKeys(n)), commitTo(1)
				measure(b, n, n*(12+4*benchDim), func() {
					ctl[0].To, u.From, u.To = u.To, u.To, u.To+1
					if _, err := conn.Stage(b.Context(), ctl, 1, u); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}

// framing answers requests of one size with replies of another.
func framing(b *testing.B, rows, request, reply int) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		in, out := make([]byte, request), make([]byte, reply)
		for err == nil {
			if err = readFrame(c, in); err == nil {
				err = writeFrame(c, out)
			}
		}
		done <- c.Close()
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	out, in := make([]byte, request), make([]byte, reply)
	measure(b, rows, request+reply, func() {
		if err := errors.Join(writeFrame(c, out), readFrame(c, in)); err != nil {
			b.Fatal(err)
		}
	})
	if err := errors.Join(c.Close(), <-done, l.Close()); err != nil {
		b.Error(err)
	}
}

func writeFrame(w io.Writer, p []byte) error {
	var h [8]byte
	binary.LittleEndian.PutUint64(h[:], uint64(len(p)))
	_, err := (&net.Buffers{h[:], p}).WriteTo(w)
	return err
}

func readFrame(r io.Reader, p []byte) error {
	var h [8]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(h[:]); n != uint64(len(p)) {
		return fmt.Errorf("frame of %d bytes, want %d", n, len(p))
	}
	_, err := io.ReadFull(r, p)
	return err
}
