package psbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/wire"
)

const (
	dim = 16
	// rowBytes is what a lookup brings for a row.
	rowBytes = 4 * dim
)

// Wire measures lookups and pushes over a stream against plain TCP framing of the same bytes, on loopback: payload
// per second of processor time of both ends together. The other end of either answers out of a fixed buffer; the cases
// "with a shard" have a shard at the end of the stream, and one in this process beside; those of a precision are the same rows as float32
// beside, and MB are those of float32 in both. Those over TLS have the same stream without it beside.
func Wire(ctx context.Context, o bench.Options) ([]bench.Result, error) {
	var out []bench.Result
	for _, shard := range []bool{false, true} {
		for _, op := range []string{"lookup", "push"} {
			for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
				name := fmt.Sprintf("wire %s %d KiB", op, size>>10)
				if shard {
					name += " with a shard"
				}
				if !o.Wants(name) {
					continue
				}
				r, err := compareWire(ctx, o, name, op == "push", shard, size/rowBytes)
				if err != nil {
					return out, err
				}
				out = append(out, r)
			}
		}
	}
	for _, precision := range []param.Precision{param.BF16, param.FP16} {
		for _, op := range []string{"lookup", "push"} {
			for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
				name := fmt.Sprintf("wire %s %d KiB in %s", op, size>>10, precision)
				if !o.Wants(name) {
					continue
				}
				r, err := comparePrecision(ctx, o, name, op == "push", precision, size/rowBytes)
				if err != nil {
					return out, err
				}
				out = append(out, r)
			}
		}
	}
	for _, op := range []string{"lookup", "push"} {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
			name := fmt.Sprintf("wire %s %d KiB over TLS", op, size>>10)
			if !o.Wants(name) {
				continue
			}
			r, err := compareTLS(ctx, o, name, op == "push", size/rowBytes)
			if err != nil {
				return out, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

func comparePrecision(ctx context.Context, o bench.Options, name string, push bool, precision param.Precision, rows int) (_ bench.Result, err error) {
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	var both [2]bench.Candidate
	for i, p := range []param.Precision{precision, param.Float32} {
		conn, err := overWire(ctx, fixed{}, p, nil, &ends)
		if err != nil {
			return bench.Result{}, err
		}
		if both[i], err = caller(ctx, p.String(), conn, push, rows); err != nil {
			return bench.Result{}, err
		}
	}
	return bench.Compare(ctx, o, name, "MB/cpu-s", bench.CPUSeconds, both[0], both[1])
}

func compareWire(ctx context.Context, o bench.Options, name string, push, shard bool, rows int) (_ bench.Result, err error) {
	request, reply := 8*rows, rowBytes*rows
	if push {
		request, reply = (8+4+rowBytes)*rows, 0
	}
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	conn := ps.Conn(fixed{})
	var theirs bench.Candidate
	if shard {
		if conn, err = openShard(ctx, &ends); err == nil {
			theirs, err = caller(ctx, "in process", conn, push, rows)
		}
	} else {
		theirs, err = plain(request, reply, &ends)
	}
	if err != nil {
		return bench.Result{}, err
	}
	if conn, err = overWire(ctx, conn, param.Float32, nil, &ends); err != nil {
		return bench.Result{}, err
	}
	ours, err := caller(ctx, "stream", conn, push, rows)
	if err != nil {
		return bench.Result{}, err
	}
	return bench.Compare(ctx, o, name, "MB/cpu-s", bench.CPUSeconds, ours, theirs)
}

// ends are closed in the reverse order.
type ends []func() error

func (e *ends) add(f func() error) { *e = append(*e, f) }

func (e *ends) close() error {
	var err error
	for _, f := range slices.Backward(*e) {
		err = errors.Join(err, f())
	}
	return err
}

// caller makes calls of n rows; what it returns as work is their payload in MB. Pushes go to a split of its name.
func caller(ctx context.Context, name string, c ps.Conn, push bool, n int) (bench.Candidate, error) {
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = int64(uint64(i) * 0x9e3779b97f4a7c15)
	}
	found := &param.Rows{Keys: [][]int64{keys}, Values: [][]float32{make([]float32, n*dim)}}
	u := &param.Update{
		Source: "s", Split: name, LR: 1, NumRows: n,
		Keys: [][]int64{keys}, Counts: [][]uint32{make([]uint32, n)}, Grads: [][]float32{make([]float32, n*dim)},
	}
	for i := range u.Counts[0] {
		u.Counts[0][i] = 1
	}
	for i := range u.Grads[0] {
		u.Grads[0][i] = .01
	}
	ctl := []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: u.Source, Split: u.Split}, Epoch: 1}}
	stage := func() (float64, error) {
		before := ctl
		if u.From, u.To = u.To, u.To+1; u.From == 0 {
			before = nil
		}
		ctl[0].To = u.From
		_, err := c.Stage(ctx, before, 1, u)
		return float64(n*(8+4+rowBytes)) / 1e6, err
	}
	lookup := func() (float64, error) {
		_, err := c.Lookup(ctx, nil, found)
		return float64(n*(8+rowBytes)) / 1e6, err
	}
	if _, _, err := c.Acquire(ctx, ctl[0].Split, 1); err != nil {
		return bench.Candidate{}, err
	}
	for range 2 { // the second commits the first, so that there are rows
		if _, err := stage(); err != nil {
			return bench.Candidate{}, err
		}
	}
	if push {
		return bench.Candidate{Name: name, Run: stage}, nil
	}
	return bench.Candidate{Name: name, Run: lookup}, nil
}

// fixed answers lookups with whatever is in the buffer of the reply.
type fixed struct{ ps.Conn }

func (fixed) Acquire(context.Context, ps.SplitID, uint64) (ps.SplitState, ps.Reply, error) {
	return ps.SplitState{}, ps.Reply{}, nil
}

func (fixed) Lookup(context.Context, []ps.Control, *param.Rows) (ps.Reply, error) {
	return ps.Reply{}, nil
}

func (fixed) Stage(context.Context, []ps.Control, uint64, *param.Update) (ps.Reply, error) {
	return ps.Reply{}, nil
}

func (fixed) Close(context.Context, bool) error { return nil }

// layout is one table of rows of a dimension under Adagrad.
func layout(dim int) *param.Layout {
	return &param.Layout{Tables: []param.Table{{Name: "t", Segments: []param.Segment{{
		Name: "v", Dim: dim, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.05},
	}}}}}
}

// openShard opens a shard in this process and a conn to it.
func openShard(ctx context.Context, ends *ends) (ps.Conn, error) {
	var conn ps.Conn
	c, err := coordinator.Open(ctx, coordinator.Options{Layout: layout(dim), WrapConn: func(_ string, _ int, c ps.Conn) ps.Conn {
		conn = c
		return c
	}})
	if err != nil {
		return nil, err
	}
	ends.add(func() error { return c.Close(context.WithoutCancel(ctx)) })
	_, err = c.Client(ctx, "w")
	return conn, err
}

// host serves one conn, which stays open.
type host struct{ conn ps.Conn }

func (h host) Open(context.Context, wire.Hello) (ps.Conn, wire.Welcome, error) {
	return kept{h.conn}, wire.Welcome{Incarnation: 1}, nil
}

type kept struct{ ps.Conn }

func (kept) Close(context.Context, bool) error { return nil }

// overWire puts a conn of this process behind a server of it, over TLS unless that is nil.
func overWire(ctx context.Context, c ps.Conn, p param.Precision, tls *wire.TLS, ends *ends) (ps.Conn, error) {
	l, err := wire.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv, err := wire.NewServer(wire.ServerConfig{TLS: tls})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	wire.RegisterServer(srv, host{c}, wire.HostOptions{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	ends.add(func() error { srv.Stop(); return <-served })
	cc, err := wire.NewClient(l.Addr().String(), wire.ClientConfig{TLS: tls})
	if err != nil {
		return nil, err
	}
	ends.add(cc.Close)
	conn, err := wire.Dial(ctx, cc, wire.Hello{Job: "bench", Worker: "w", Session: 1, Precision: p}, wire.ConnOptions{})
	if err != nil {
		return nil, err
	}
	ends.add(func() error { return conn.Close(context.WithoutCancel(ctx), true) })
	return conn, nil
}

// plain answers requests of one size with replies of another: a length and the bytes, by writev and ReadFull, out of and into
// the same memory each time.
func plain(request, reply int, ends *ends) (bench.Candidate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return bench.Candidate{}, err
	}
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		in, out := newFrame(request), newFrame(reply)
		for err == nil {
			if err = in.read(c); err == nil {
				err = out.write(c)
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		done <- errors.Join(err, c.Close())
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		err = errors.Join(err, l.Close())
		return bench.Candidate{}, errors.Join(err, <-done)
	}
	ends.add(func() error { return errors.Join(c.Close(), <-done, l.Close()) })
	out, in := newFrame(request), newFrame(reply)
	return bench.Candidate{Name: "tcp framing", Run: func() (float64, error) {
		return float64(request+reply) / 1e6, errors.Join(out.write(c), in.read(c))
	}}, nil
}

// frame is a length and so many bytes.
type frame struct {
	head [8]byte
	data []byte
	bufs net.Buffers
}

func newFrame(n int) *frame { return &frame{data: make([]byte, n)} }

func (f *frame) write(w io.Writer) error {
	binary.LittleEndian.PutUint64(f.head[:], uint64(len(f.data)))
	f.bufs = append(f.bufs[:0], f.head[:], f.data)
	all := f.bufs
	_, err := all.WriteTo(w)
	return err
}

func (f *frame) read(r io.Reader) error {
	if _, err := io.ReadFull(r, f.head[:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(f.head[:]); n != uint64(len(f.data)) {
		return fmt.Errorf("frame of %d bytes, want %d", n, len(f.data))
	}
	_, err := io.ReadFull(r, f.data)
	return err
}
