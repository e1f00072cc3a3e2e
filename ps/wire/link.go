package wire

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// link is the server's end of a stream. Its memory is reused from call to call.
type link struct {
	conn  ps.Conn
	limit uint64
	// precision is that of the stream.
	precision param.Precision
	alive     time.Duration
	dec       decoder

	// mu makes frames go out one at a time: replies, and heartbeat from the timer.
	mu   sync.Mutex
	enc  encoder
	busy bool // a call is being handled
	seq  uint64
	// timer fires when a call takes long.
	timer *time.Timer

	ctl    []ps.Control
	rows   param.Rows // its values and state lie in box
	state  [][]float32
	box    []float32
	update param.Update
	dense  []float32
	trace  []byte
	lens   []int
	lens2  []int
	lens3  []int
}

// answer is what goes back for a call.
type answer struct {
	reply   ps.Reply
	rows    []float32
	halves  bool // rows go in the stream's precision
	hasVer  bool
	version uint64
	dense   []float32 // none: the client has them
	// hasState belongs to a take-over.
	hasState bool
	state    ps.SplitState
}

func (l *link) welcome(seq uint64, w welcome) error {
	l.enc.begin(header{kind: kindWelcome, seq: seq, bodyLen: welcomeLen})
	w.put(&l.enc)
	return l.enc.end()
}

// refuse sends an error.
func (l *link) refuse(seq uint64, cause error) error {
	l.enc.begin(header{kind: kindError, seq: seq, bodyLen: uint64(sizeOfError(cause))})
	putError(&l.enc, cause)
	return l.enc.end()
}

// serve handles calls until the client says goodbye or the stream ends.
func (l *link) serve(ctx context.Context, x *served) error {
	defer func() {
		l.mu.Lock() // a heartbeat that is being sent is waited for, and none follows
		defer l.mu.Unlock()
		if l.busy = false; l.timer != nil {
			l.timer.Stop()
		}
	}()
	for {
		h, err := l.dec.next(l.limit, "MaxMessage of the server")
		if err != nil {
			return err
		}
		// Without the session's lock: a request of which the rest never comes must not keep the client that continues the session waiting.
		r, failed := l.read(h)
		if l.dec.err != nil {
			return l.dec.err
		}
		var a answer
		if failed == nil {
			l.begin(h.seq)
			if a, failed, err = l.call(ctx, x, r); err != nil {
				return err
			}
			if ctx.Err() != nil { // what a call then says may come of that: the client is notified that the stream has ended, and makes it again
				return context.Cause(ctx)
			}
		}
		if err := l.answer(h.seq, a, failed); err != nil || h.kind == kindClose {
			return err
		}
	}
}

// begin lets heartbeat be sent from now on.
func (l *link) begin(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.seq = true, seq
	if l.timer == nil {
		l.timer = time.AfterFunc(l.alive, l.showAlive)
	} else {
		l.timer.Reset(l.alive)
	}
}

// showAlive is called by the timer while a call is being handled.
func (l *link) showAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.busy {
		return
	}
	l.enc.begin(header{kind: kindAlive, seq: l.seq})
	if l.enc.end() == nil {
		l.timer.Reset(l.alive)
	}
}

// answer sends a reply, or the error that the call failed with.
func (l *link) answer(seq uint64, a answer, failed error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy = false; l.timer != nil {
		l.timer.Stop()
	}
	if failed != nil {
		return l.refuse(seq, failed)
	}
	e := &l.enc
	h := header{kind: kindReply, seq: seq, bodyLen: replyLen}
	size := uint64(4)
	if a.halves {
		size = 2
	}
	h.bodyLen += size * uint64(len(a.rows))
	if a.hasVer {
		h.bodyLen += 8 + 4 + 4*uint64(len(a.dense))
	}
	if a.hasState {
		h.bodyLen += progressLen*uint64(1+len(a.state.Staged)) + 4
	}
	e.begin(h)
	e.u64(a.reply.Cut)
	e.u64(a.reply.Commits)
	e.u64(a.reply.Own)
	if a.halves {
		putHalves(e, l.precision, a.rows, 0)
	} else {
		putNumbers(e, a.rows)
	}
	if a.hasVer {
		e.u64(a.version)
		e.u32(uint32(len(a.dense)))
		putNumbers(e, a.dense)
	}
	if a.hasState {
		putSplitState(e, a.state)
	}
	return e.end()
}

// request is what a call needs beside the link's own buffers.
type request struct {
	kind        kind
	clean       bool
	have, epoch uint64
	id          ps.SplitID
}

// read reads the rest of a request. An error is the call's; the decoder's own ends the stream.
func (l *link) read(h header) (r request, failed error) {
	d := &l.dec
	r = request{kind: h.kind, clean: h.kind == kindClose && h.flags&flagClean != 0}
	l.ctl = readControls(d, l.ctl, h.numCtl)
	if d.err == nil && d.left != h.bodyLen {
		d.err = violation("controls of another length than announced")
	}
	switch h.kind {
	case kindLookup:
		failed = l.readLookup()
	case kindDense:
		r.have = d.u64()
		n := d.u32()
		if size := headerLen + replyLen + 8 + 4 + 4*uint64(n); size > l.limit {
			failed = tooLarge("reply to dense", size, l.limit, "MaxMessage of the server")
		} else if d.err == nil {
			l.dense = sized(l.dense, int(n))
		}
	case kindStage:
		if l.update.Op = param.Op(h.flags); l.update.Op >= param.NumOps && d.err == nil {
			d.err = violation("update with the unknown operation %d", h.flags)
		}
		r.epoch = l.readUpdate()
	case kindAcquire:
		r.epoch = d.u64()
		r.id = ps.SplitID{Source: d.str(), Split: d.str()}
	case kindControl, kindClose:
	default:
		d.err = violation("%s where a request is due", h.kind)
	}
	if d.end() == nil && len(d.rest) > 0 { // a client waits for the answer
		d.err = violation("bytes after a frame")
	}
	return r, failed
}

// call makes a call that was read. failed is the call's error, err ends the stream.
func (l *link) call(ctx context.Context, x *served, r request) (a answer, failed, err error) {
	x.lock()
	defer x.unlock()
	if x.over {
		return a, nil, errContinued
	}
	switch r.kind {
	case kindLookup:
		a.rows, a.halves = l.box, sizeOfRows(l.precision, len(l.rows.State)) == 2
		a.reply, failed = l.conn.Lookup(ctx, l.ctl, &l.rows)
	case kindDense:
		a.hasVer = true
		if a.version, a.reply, failed = l.conn.Dense(ctx, l.ctl, r.have, l.dense); a.version != r.have {
			a.dense = l.dense
		}
	case kindStage:
		l.update.Exchange = true // the next one is read to whatever memory there is
		a.reply, failed = l.conn.Stage(ctx, l.ctl, r.epoch, &l.update)
	case kindControl:
		a.reply, failed = l.conn.Control(ctx, l.ctl)
	case kindAcquire:
		a.state, a.reply, failed = l.conn.Acquire(ctx, r.id, r.epoch)
		a.hasState = true
	case kindClose:
		failed = x.finish(ctx, true, r.clean, nil)
	}
	return a, failed, nil
}

// readLookup reads the body of a lookup to l.rows. An error is the call's.
func (l *link) readLookup() error {
	d := &l.dec
	numKeys, numValues := d.count(4), d.count(4)
	l.lens, l.lens2 = readLens(d, l.lens, numKeys), readLens(d, l.lens2, numValues)
	numStates := d.count(4)
	l.lens3 = readLens(d, l.lens3, numStates)
	l.rows.Keys = readAll(d, l.rows.Keys, l.lens)
	size, each := uint64(headerLen+replyLen), sizeOfRows(l.precision, numStates)
	for _, lens := range [][]int{l.lens2, l.lens3} {
		for _, n := range lens {
			size += each * uint64(n)
		}
	}
	switch {
	case d.err != nil:
		return d.err
	case size > l.limit:
		return tooLarge("reply to a lookup", size, l.limit, "MaxMessage of the server")
	}
	l.room(l.lens2, l.lens3)
	return nil
}

// room makes l.rows.Values and l.rows.State of so many values each, one behind the other. No numbers of state mean that none is wanted.
func (l *link) room(values, states []int) {
	total := 0
	for _, n := range values {
		total += n
	}
	for _, n := range states {
		total += n
	}
	l.box = sized(l.box, total)
	rest := l.box
	l.rows.Values, rest = deal(l.rows.Values[:0], rest, values)
	l.state, _ = deal(l.state[:0], rest, states)
	if l.rows.State = l.state; len(states) == 0 {
		l.rows.State = nil
	}
}

// deal appends slices of so many values each to dst, and returns what is left of from.
func deal(dst [][]float32, from []float32, lens []int) (_ [][]float32, rest []float32) {
	for _, n := range lens {
		dst, from = append(dst, from[:n:n]), from[n:]
	}
	return dst, from
}

// readUpdate reads the body of a push to l.update.
func (l *link) readUpdate() (epoch uint64) {
	d, u := &l.dec, &l.update
	epoch = d.u64()
	u.From, u.To, u.NumRows, u.Time = int64(d.u64()), int64(d.u64()), int(d.u64()), int64(d.u64())
	u.LR, u.Examples = math.Float32frombits(d.u32()), int64(d.u64())
	u.Source, u.Split = d.str(), d.str()
	numKeys, numCounts, numGrads, numDense, numTrace := d.count(4), d.count(4), d.count(4), d.count(4), d.count(1)
	l.lens, l.lens2, l.lens3 = readLens(d, l.lens, numKeys), readLens(d, l.lens2, numCounts), readLens(d, l.lens3, numGrads)
	u.Keys, u.Counts = readAll(d, u.Keys, l.lens), readAll(d, u.Counts, l.lens2)
	for len(u.Grads) < len(l.lens3) {
		u.Grads = append(u.Grads, nil)
	}
	u.Grads = u.Grads[:len(l.lens3)]
	for t, n := range l.lens3 {
		u.Grads[t] = readGrads(d, gradsIn(l.precision, u.Op), u.Grads[t], n)
	}
	u.Dense = readSlice(d, u.Dense, numDense)
	l.trace = d.appendBytes(l.trace[:0], numTrace)
	if u.Trace = l.trace; numTrace == 0 {
		u.Trace = nil
	}
	return epoch
}

// sized returns a slice of length n that reuses b where it can.
func sized(b []float32, n int) []float32 {
	if cap(b) < n {
		return make([]float32, n, n+n/4)
	}
	return b[:n]
}
