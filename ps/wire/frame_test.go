package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// recorder takes what an encoder writes: its bytes, and which memory they lay in.
type recorder struct {
	bytes.Buffer
	pieces  [][]byte
	discard bool
}

func (r *recorder) writev(b *net.Buffers) error {
	for _, p := range *b {
		if !r.discard {
			r.Write(p)
			r.pieces = append(r.pieces, p)
		}
	}
	return nil
}

// player hands bytes to a decoder, in pieces of any size.
type player struct {
	data []byte
	rng  *rand.Rand // nil: as many as are asked for
	at   int
	loop bool
}

// Read implements [io.Reader].
func (p *player) Read(b []byte) (int, error) {
	if p.loop && p.at == len(p.data) {
		p.at = 0
	}
	if p.at == len(p.data) {
		return 0, io.EOF
	}
	if p.rng != nil {
		b = b[:1+p.rng.IntN(len(b))]
	}
	n := copy(b, p.data[p.at:])
	p.at += n
	return n, nil
}

func encode(t testing.TB, c *call, seq uint64, portable bool) []byte {
	t.Helper()
	var r recorder
	e := newEncoder(&r)
	e.portable = portable
	h, err := c.header(seq)
	if err != nil {
		t.Fatal(err)
	}
	e.begin(h)
	c.put(&e)
	if err := e.end(); err != nil {
		t.Fatal(err)
	}
	return r.Bytes()
}

func bigUpdate(n int) *param.Update {
	u := &param.Update{Source: "kafka", Split: "ratings/3", From: 1, To: 2, NumRows: n, Time: 3, LR: 0.5, Examples: 1 << 40, Trace: []byte("trace")}
	for t := range 3 {
		u.Keys, u.Counts, u.Grads = append(u.Keys, nil), append(u.Counts, nil), append(u.Grads, nil)
		for i := range n * t {
			u.Keys[t] = append(u.Keys[t], int64(i)*math.MaxInt32)
			u.Counts[t] = append(u.Counts[t], uint32(i))
			u.Grads[t] = append(u.Grads[t], float32(i), math.Float32frombits(0x7fa00001+uint32(i%7))) // signalling NaNs keep their bits
		}
	}
	u.Dense = append(u.Dense, u.Grads[2]...)
	return u
}

// smooth makes the gradients finite, and small in one table.
func smooth(u *param.Update) *param.Update {
	for t, g := range u.Grads {
		for i := range g {
			g[i] = float32(math.Ldexp(float64(i%1001-500), -40*t))
		}
	}
	for i := range u.Dense {
		u.Dense[i] = 1e-9 * float32(i)
	}
	return u
}

func requests() []call {
	ctl := []ps.Control{
		{Kind: ps.Commit, Split: ps.SplitID{Source: "kafka", Split: "ratings/3"}, Epoch: 1, To: 77},
		{Kind: ps.Marker, Cut: 4, State: map[string][]byte{"schedule": []byte("state")}},
	}
	return []call{
		{kind: kindLookup, ctl: ctl, rows: &param.Rows{Keys: [][]int64{{1, 2}, {}, {-3}}, Values: [][]float32{{0, 0}, {}, {0}}}},
		{kind: kindLookup, rows: &param.Rows{Keys: [][]int64{{1, 2}, {}}, Values: [][]float32{{0, 0}, {}}, State: [][]float32{{0, 0, 0, 0}, {}}}},
		{kind: kindDense, have: 3, dst: make([]float32, 10)},
		{kind: kindStage, ctl: ctl[:1], epoch: 9, update: bigUpdate(3)},
		{kind: kindStage, ctl: ctl, epoch: 9, update: bigUpdate(20_000)},
		{kind: kindStage, update: &param.Update{}},
		{kind: kindStage, precision: param.BF16, ctl: ctl, epoch: 9, update: smooth(bigUpdate(20_000))},
		{kind: kindStage, precision: param.FP16, ctl: ctl, epoch: 9, update: smooth(bigUpdate(20_000))},
		{kind: kindLookup, precision: param.FP16, rows: &param.Rows{Keys: [][]int64{{1, 2}, {}, {-3}}, Values: [][]float32{{0, 0}, {}, {0}}}},
		{kind: kindControl, ctl: ctl},
		{kind: kindAcquire, epoch: 2, id: ps.SplitID{Source: "s", Split: "x"}},
		{kind: kindClose, clean: true},
	}
}

// TestFramesDoNotDependOnTheMachine compares the fast path with the one that goes number by number, and on reading cuts
// messages anywhere.
func TestFramesDoNotDependOnTheMachine(t *testing.T) {
	t.Parallel()
	for i, c := range requests() {
		fast, slow := encode(t, &c, 5, false), encode(t, &c, 5, true)
		if !bytes.Equal(fast, slow) {
			t.Errorf("request %d: the paths make other bytes", i)
		}
		for _, portable := range []bool{false, true} {
			l := &link{limit: 1 << 30, precision: c.precision, dec: newDecoder(&player{data: fast, rng: rand.New(rand.NewPCG(1, 1))})}
			l.dec.portable = portable
			h, err := l.dec.next(l.limit, "")
			if err != nil || h.seq != 5 || h.kind != c.kind {
				t.Fatalf("request %d: header %+v, %v", i, h, err)
			}
			r, failed := l.read(h)
			if failed != nil || l.dec.err != nil {
				t.Fatalf("request %d: %v, %v", i, failed, l.dec.err)
			}
			again := call{kind: h.kind, ctl: l.ctl, precision: c.precision, epoch: r.epoch, id: r.id, have: r.have, clean: r.clean, rows: &l.rows, dst: l.dense, update: &l.update}
			if !bytes.Equal(fast, encode(t, &again, 5, false)) {
				t.Errorf("request %d, portable=%v: what was read makes other bytes", i, portable)
			}
		}
	}
}

// TestHalves: what arrives of rows and gradients is what the precision makes of them, in half of the bytes; rows with state are as
// they were.
func TestHalves(t *testing.T) {
	t.Parallel()
	for _, p := range []param.Precision{param.BF16, param.FP16} {
		u := smooth(bigUpdate(5000))
		c := call{kind: kindStage, precision: p, update: u}
		l := &link{limit: 1 << 30, precision: p, dec: newDecoder(&player{data: encode(t, &c, 5, false)})}
		h, err := l.dec.next(l.limit, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, failed := l.read(h); failed != nil || l.dec.err != nil {
			t.Fatal(failed, l.dec.err)
		}
		if !slices.Equal(l.update.Dense, u.Dense) {
			t.Errorf("%s: other dense gradients have arrived", p)
		}
		for i, g := range u.Grads {
			got := l.update.Grads[i]
			want := make([]float32, len(g))
			p.RoundGradients(want, g)
			if !slices.Equal(got, want) {
				t.Errorf("%s: gradients of table %d: other numbers have arrived", p, i)
			}
		}
		for _, states := range [][]int{nil, {7}} {
			rows := &param.Rows{Values: [][]float32{make([]float32, 3000), {}, make([]float32, 5)}}
			for range states {
				rows.State = append(rows.State, make([]float32, 7))
			}
			var sent recorder
			l := &link{limit: 1 << 30, precision: p, enc: newEncoder(&sent)}
			l.room([]int{3000, 0, 5}, states)
			for i := range l.box {
				l.box[i] = 1 / float32(i-1500)
			}
			if err := l.answer(7, answer{rows: l.box, halves: states == nil}, nil); err != nil {
				t.Fatal(err)
			}
			c := call{kind: kindLookup, precision: p, rows: rows}
			if n := len(sent.Bytes()); uint64(n) != c.replySize() {
				t.Errorf("%s: %d bytes, the client expects %d", p, n, c.replySize())
			}
			d := newDecoder(&player{data: sent.Bytes(), rng: rand.New(rand.NewPCG(2, 1))})
			if _, err := d.next(1<<30, ""); err != nil {
				t.Fatal(err)
			}
			if err := c.readReply(&d); err != nil {
				t.Fatal(err)
			}
			want, got := slices.Clone(l.box), slices.Concat(slices.Concat(rows.Values...), slices.Concat(rows.State...))
			if states == nil {
				p.RoundRows(want, want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s with %d states: other values have arrived", p, len(states))
			}
		}
	}
}

// TestExponentsOfGradients: an exponent that no client sends ends the stream.
func TestExponentsOfGradients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p  param.Precision
		k  int32
		ok bool
	}{
		{param.FP16, param.MinExponent, true},
		{param.FP16, param.MaxExponent, true},
		{param.FP16, param.MinExponent - 1, false},
		{param.FP16, param.MaxExponent + 1, false},
		{param.BF16, 0, true},
		{param.BF16, 1, false},
		{param.FP16, math.MinInt32, false},
	} {
		b := binary.LittleEndian.AppendUint32(nil, uint32(c.k))
		d := newDecoder(&player{data: append(b, 0, 0)})
		d.left = 6
		if readGrads(&d, c.p, nil, 1); (d.end() == nil) != c.ok || !c.ok && !errors.Is(d.err, ErrProtocol) {
			t.Errorf("%s, 2^%d: %v", c.p, c.k, d.err)
		}
	}
}

// TestAnnouncedLengthsMakeNoRoom lets frames announce much more than comes. It counts what the whole process allocates, so it runs alone.
func TestAnnouncedLengthsMakeNoRoom(t *testing.T) {
	frame := func(h header, body ...uint64) []byte {
		var b [headerLen]byte
		h.put(&b)
		out := b[:]
		for _, v := range body {
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		}
		return out
	}
	const much = 64 << 20
	for name, f := range map[string][]byte{
		"keys":       frame(header{kind: kindLookup, bodyLen: 8*much + 20}, 1, 1, much, 0, 0, 0),
		"tables":     frame(header{kind: kindLookup, bodyLen: 8 * much}, much, 0),
		"counts":     frame(header{kind: kindStage, bodyLen: 8 * much}, append(make([]uint64, 15), 0, much, 0, 0, 0)...),
		"dense":      frame(header{kind: kindStage, bodyLen: 8 * much}, append(make([]uint64, 15), 0, 0, 0, much, 0, 0)...),
		"half grads": frame(header{kind: kindStage, bodyLen: 8 * much}, append(make([]uint64, 15), 0, 0, 1, 0, 0, much, 0)...),
		"trace":      frame(header{kind: kindStage, bodyLen: 8 * much}, append(make([]uint64, 15), 0, 0, 0, 0, much, 0)...),
		"controls":   frame(header{kind: kindControl, numCtl: much / 64, ctlLen: much}),
		"state":      frame(header{kind: kindControl, numCtl: 1, ctlLen: much}, 3, 0, 0, 0, 0, 0, 1<<24, 0, 0),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l := &link{limit: 1 << 30, dec: newDecoder(&player{data: f})}
		if strings.HasPrefix(name, "half") {
			l.precision = param.FP16
		}
		h, err := l.dec.next(l.limit, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _ = l.read(h); !errors.Is(l.dec.err, io.EOF) {
			t.Errorf("%s: %v, want the end of the stream", name, l.dec.err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s: %d bytes were allocated for %d that came", name, n, len(f))
		}
	}
}

// FuzzRequest reads a client's frames as a server does, in the precision that the upper bits of the seed say.
func FuzzRequest(f *testing.F) {
	for _, c := range requests() {
		b := encode(f, &c, 5, false)
		f.Add(b[:min(len(b), 4096)], 1|uint64(c.precision)<<60)
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		if len(data) == 0 {
			return
		}
		p := param.Precision(seed >> 60 % 3)
		l := &link{limit: 1 << 20, precision: p, dec: newDecoder(&player{data: data, rng: rand.New(rand.NewPCG(seed, 1))})}
		h, err := l.dec.next(l.limit, "")
		if err != nil {
			return
		}
		r, failed := l.read(h)
		if l.dec.err != nil || failed != nil {
			return
		}
		// What was read is written the same way, but for the order of a map and for flags that mean nothing.
		again := call{kind: h.kind, ctl: l.ctl, precision: p, epoch: r.epoch, id: r.id, have: r.have, clean: r.clean, rows: &l.rows, dst: l.dense, update: &l.update}
		out := encode(t, &again, h.seq, true)
		if p != param.Float32 && h.kind == kindStage { // other exponents stand for the same numbers
			if uint64(len(out)) != h.size() {
				t.Errorf("read %d bytes, written %d", h.size(), len(out))
			}
			return
		}
		if h.numCtl == 0 && !bytes.Equal(out[8:], data[8:len(out)]) {
			t.Errorf("read %x, written %x", data, out)
		}
	})
}

// FuzzReply reads a server's frames as a client does.
func FuzzReply(f *testing.F) {
	add := func(h header, put func(*encoder)) {
		var r recorder
		e := newEncoder(&r)
		e.begin(h)
		put(&e)
		if err := e.end(); err != nil {
			f.Fatal(err)
		}
		for kind := range byte(6) {
			f.Add(r.Bytes(), kind, uint64(1))
			f.Add(r.Bytes(), kind, 1|uint64(param.FP16)<<60)
		}
	}
	add(header{kind: kindReply, seq: 1, bodyLen: 8}, func(e *encoder) { e.u64(2) })
	add(header{kind: kindReply, seq: 1, bodyLen: 8 + 12}, func(e *encoder) { e.u64(2); putNumbers(e, []float32{1, 2, 3}) })
	add(header{kind: kindReply, seq: 1, bodyLen: 8 + 2*progressLen + 4}, func(e *encoder) {
		e.u64(2)
		putSplitState(e, ps.SplitState{Staged: []ps.Progress{{Position: 3}}})
	})
	bad := fmt.Errorf("x: %w", &ps.EpochError{Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, Current: 2})
	add(header{kind: kindError, seq: 1, bodyLen: uint64(sizeOfError(bad))}, func(e *encoder) { putError(e, bad) })
	add(header{kind: kindAlive, seq: 1}, func(*encoder) {})
	add(header{kind: kindWelcome, bodyLen: welcomeLen}, func(e *encoder) { (&welcome{Welcome{1, 1 << 20}, ticket{}}).put(e) })
	f.Fuzz(func(t *testing.T, data []byte, kind byte, seed uint64) {
		if len(data) == 0 {
			return
		}
		d := newDecoder(&player{data: data, rng: rand.New(rand.NewPCG(seed, 1))})
		h, err := d.next(1<<20, "")
		if err != nil {
			return
		}
		switch h.kind {
		case kindReply:
			c := call{kind: kindLookup + kindOf(kind), precision: param.Precision(seed >> 60 % 3), rows: &param.Rows{Values: [][]float32{make([]float32, 2), make([]float32, 1)}}, dst: make([]float32, 3)}
			_ = c.readReply(&d)
		case kindError:
			if remote, err := readError(&d); err == nil && remote.Error() == "" && remote.Unwrap() == nil {
				return
			}
		case kindWelcome:
			var w welcome
			if w.read(&d) == nil && w.MaxMessage < headerLen {
				t.Errorf("limit of %d bytes", w.MaxMessage)
			}
		case kindHello:
			var h hello
			_ = h.read(&d)
		default:
		}
	})
}

func kindOf(b byte) kind { return kind(b % 6) }

// TestHello is read as it was written, and another version is refused by name.
func TestHello(t *testing.T) {
	t.Parallel()
	want := hello{Hello{
		Version: ProtocolVersion, Job: "job", Plan: "plan", Layout: "layout", Source: "source", Model: "model", Shape: "shape", Role: ps.Reader,
		Precision: param.FP16, Shards: 5, Shard: 3, Generation: 7, Session: 1 << 60, Worker: "worker", Resumed: true,
	}, 1500e6}
	read := func(h hello) (got hello, err error) {
		var r recorder
		e := newEncoder(&r)
		hd, err := h.header(1)
		if err != nil {
			t.Fatal(err)
		}
		e.begin(hd)
		h.put(&e)
		if err := e.end(); err != nil {
			t.Fatal(err)
		}
		d := newDecoder(&player{data: r.Bytes()})
		if _, err := d.next(maxHello, ""); err != nil {
			t.Fatal(err)
		}
		err = got.read(&d)
		return got, err
	}
	if got, err := read(want); err != nil || got != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want.Hello, got.Hello))
	}
	for v, older := range map[uint32]string{0: "the client is older", ProtocolVersion + 1: "the server is older"} {
		h := want
		h.Version = v
		_, err := read(h)
		if text := fmt.Sprintf("the client speaks version %d, the server %d, so %s", v, ProtocolVersion, older); !errors.Is(err, ErrVersion) || !bytes.Contains([]byte(err.Error()), []byte(text)) {
			t.Errorf("version %d: %v, want %q", v, err, text)
		}
	}
}

// TestCodesAreUnique keeps errors apart.
func TestCodesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[byte]error{codeEpoch: &ps.EpochError{}}
	for _, c := range errorCodes {
		if other := seen[c.code]; other != nil || c.code == 0 {
			t.Errorf("code %d is of %v and of %v", c.code, other, c.err)
		}
		seen[c.code] = c.err
		if err := Remote("text", Codes(c.err)); !errors.Is(err, c.err) || err.Error() != "text" {
			t.Errorf("code %d: %v", c.code, err)
		}
	}
}

// TestFramesAllocateNothing is about both ends in the steady state, gRPC apart.
func TestFramesAllocateNothing(t *testing.T) {
	if testbed.Race {
		t.Skip("the race detector allocates")
	}
	for _, c := range requests() {
		for i := range c.ctl {
			c.ctl[i].State = nil // belongs to a snapshot, not to the steady state
		}
		rec := &recorder{discard: true}
		e := newEncoder(rec)
		l := &link{limit: 1 << 30, precision: c.precision, dec: newDecoder(&player{data: encode(t, &c, 5, false), loop: true}), enc: newEncoder(rec)}
		lens := []int{atOnce, atOnce / 3}
		step := func() {
			h, err := c.header(5)
			if err != nil {
				t.Fatal(err)
			}
			e.begin(h)
			c.put(&e)
			if err := e.end(); err != nil {
				t.Fatal(err)
			}
			if h, err = l.dec.next(l.limit, ""); err != nil {
				t.Fatal(err)
			}
			if _, failed := l.read(h); failed != nil || l.dec.err != nil {
				t.Fatal(failed, l.dec.err)
			}
			if h.kind == kindLookup {
				l.room(lens, nil)
				if err := l.answer(5, answer{rows: l.box, halves: c.precision != param.Float32}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		step()
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations", c.kind, n)
		}
	}
	w := newWatch(1<<40, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if n := testing.AllocsPerRun(100, func() { w.begin(ctx, cancel); w.touch(); w.end() }); n != 0 {
		t.Errorf("watch: %v allocations", n)
	}
	w.close()
}

// TestValuesAreSentFromTheirMemory: the values of a lookup, the dense tensors and the gradients of a push go out as they lie, in the bytes that
// copying them would make.
func TestValuesAreSentFromTheirMemory(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, minKept/4 - 1, minKept / 4, stageSize / 4, atOnce/4 + 1, 3*atOnce/4 - 10} {
		values := make([]float32, n)
		for j := range values {
			values[j] = math.Float32frombits(0x7fa00001 + uint32(j%7))
		}
		for what, send := range map[string]func(e *encoder) error{
			"lookup": func(e *encoder) error {
				l := &link{enc: *e}
				return l.answer(7, answer{rows: values, reply: ps.Reply{Cut: 3}}, nil)
			},
			"dense": func(e *encoder) error {
				l := &link{enc: *e}
				return l.answer(7, answer{hasVer: true, version: 9, dense: values}, nil)
			},
			"push": func(e *encoder) error {
				c := call{kind: kindStage, update: &param.Update{Grads: [][]float32{{1}, values, {2}}}}
				h, err := c.header(7)
				if err != nil {
					return err
				}
				e.begin(h)
				c.put(e)
				return e.end()
			},
		} {
			var sent [2]recorder
			for i, portable := range []bool{false, true} {
				e := newEncoder(&sent[i])
				e.portable = portable
				if err := send(&e); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(sent[0].Bytes(), sent[1].Bytes()) {
				t.Errorf("%s of %d values: the paths make other bytes", what, n)
			}
			// Of the values, what lies in the pieces without a copy.
			kept, all := 0, bytesOf(values)
			for _, p := range sent[0].pieces {
				if at := kept; at < len(all) && len(p) > 0 && &p[0] == &all[at] {
					kept += len(p)
				}
				if len(p) > atOnce {
					t.Errorf("%s of %d values: %d bytes in one piece", what, n, len(p))
				}
			}
			want := len(all)
			if want < minKept {
				want = 0
			}
			if kept != want {
				t.Errorf("%s of %d values: %d bytes of %d went without a copy, want %d", what, n, kept, len(all), want)
			}
		}
	}
}

// TestSmallPiecesAreCopied: tensors of 1 KiB, which cost the kernel more as pieces of their own than to copy, go out in pieces of stages.
func TestSmallPiecesAreCopied(t *testing.T) {
	t.Parallel()
	const tensors = 200
	c := call{kind: kindStage, update: &param.Update{}}
	for range tensors {
		c.update.Grads = append(c.update.Grads, make([]float32, 256))
	}
	var sent recorder
	e := newEncoder(&sent)
	h, err := c.header(7)
	if err != nil {
		t.Fatal(err)
	}
	e.begin(h)
	c.put(&e)
	if err := e.end(); err != nil || sent.Len() < tensors<<10 {
		t.Fatalf("%d bytes were sent, %v", sent.Len(), err)
	}
	if n, most := len(sent.pieces), sent.Len()/(stageSize-2<<10)+1; n > most {
		t.Errorf("%d bytes in %d pieces, want %d at most", sent.Len(), n, most)
	}
}

// TestEncoderKeepsNothing: when a frame has been sent, the encoder does not hold the memory that was sent from where it lay.
func TestEncoderKeepsNothing(t *testing.T) {
	t.Parallel()
	var r recorder
	e := newEncoder(&r)
	e.begin(header{kind: kindControl, bodyLen: 3 * minKept})
	for range 3 {
		e.bytes(make([]byte, minKept))
	}
	if err := e.end(); err != nil || r.Len() != headerLen+3*minKept {
		t.Fatalf("%d bytes are sent, %v", r.Len(), err)
	}
	all := e.pieces[:cap(e.pieces)]
	for i, p := range all {
		if p != nil {
			t.Errorf("place %d of %d has %d bytes still", i, len(all), len(p))
		}
	}
	if len(all) < 3 {
		t.Errorf("room for %d pieces: the test looks at nothing", len(all))
	}
}

// broken fails at the second write.
type broken struct{ recorder }

func (b *broken) writev(p *net.Buffers) error {
	if b.Len() > 0 {
		return io.ErrClosedPipe
	}
	return b.recorder.writev(p)
}

// TestReplyBreaksOff: of a frame that breaks off nothing stays for the next.
func TestReplyBreaksOff(t *testing.T) {
	t.Parallel()
	to := &broken{}
	l := &link{limit: 1 << 30, enc: newEncoder(to)}
	l.room([]int{atOnce}, nil)
	if err := l.answer(7, answer{rows: l.box}, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	var next recorder
	l.enc.to = &next
	if err := l.answer(8, answer{}, nil); err != nil || next.Len() != headerLen+replyLen {
		t.Errorf("the next frame: %v, %d bytes", err, next.Len())
	}
}

// TestFramesKeepTheirLength: a frame that is not as long as was announced is not sent to its end.
func TestFramesKeepTheirLength(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 9, 11, minKept, atOnce} {
		var r recorder
		e := newEncoder(&r)
		e.begin(header{kind: kindControl, bodyLen: 10})
		e.bytes(make([]byte, n))
		if err := e.end(); !errors.Is(err, ErrProtocol) || r.Len() > 0 {
			t.Errorf("%d bytes of 10: %v, %d are sent", n, err, r.Len())
		}
	}
}
