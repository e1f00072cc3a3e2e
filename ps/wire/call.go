package wire

import (
	"math"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
)

// call is a request with room for its reply, as the client's side uses it. It is reused.
type call struct {
	kind kind
	ctl  []ps.Control
	// precision is that of the stream.
	precision param.Precision
	// Of a lookup.
	rows *param.Rows
	// Of dense tensors.
	have, version uint64
	dst           []float32
	// Of an update and of a take-over.
	epoch  uint64
	update *param.Update
	id     ps.SplitID
	state  ps.SplitState
	// Of close.
	clean bool
	reply ps.Reply
}

const (
	minControl  = 1 + 8 + 8 + 8 + 4 + 4 + 4
	progressLen = 24
	// replyLen is what every reply begins with.
	replyLen = 8 + 8 + 8
)

// sizeOfControls returns the length of the controls' section.
func sizeOfControls(ctl []ps.Control) uint64 {
	n := uint64(0)
	for i := range ctl {
		c := &ctl[i]
		n += minControl + uint64(len(c.Split.Source)+len(c.Split.Split))
		for k, v := range c.State {
			n += 4 + 1 + 4 + uint64(len(k)+len(v))
		}
	}
	return n
}

func putControls(e *encoder, ctl []ps.Control) {
	for i := range ctl {
		c := &ctl[i]
		e.u8(byte(c.Kind))
		e.u64(c.Epoch)
		e.u64(uint64(c.To))
		e.u64(c.Cut)
		e.str(c.Split.Source)
		e.str(c.Split.Split)
		e.u32(uint32(len(c.State)))
		for k, v := range c.State {
			e.str(k)
			e.u8(bit(v != nil))
			e.u32(uint32(len(v)))
			e.bytes(v)
		}
	}
}

// readControls reads n controls into ctl, which is reused.
func readControls(d *decoder, ctl []ps.Control, n uint32) []ps.Control {
	clear(ctl)
	ctl = ctl[:0]
	for range n {
		c := ps.Control{Kind: ps.ControlKind(d.u8()), Epoch: d.u64(), To: int64(d.u64()), Cut: d.u64()}
		c.Split.Source, c.Split.Split = d.str(), d.str()
		if k := d.count(9); k > 0 {
			c.State = map[string][]byte{}
			for range k {
				key, present, v := d.str(), d.u8(), d.blob()
				if present == 0 {
					v = nil
				}
				c.State[key] = v
			}
		}
		if d.err == nil && (c.Kind < ps.Commit || c.Kind > ps.Marker) {
			d.err = violation("control of unknown kind %d", c.Kind)
		}
		if d.err != nil {
			break
		}
		ctl = append(ctl, c)
	}
	return ctl
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// header returns the request's, or an error when a name or number does not fit the format.
func (c *call) header(seq uint64) (header, error) {
	h := header{kind: c.kind, seq: seq, numCtl: uint32(len(c.ctl))}
	ctl, body := sizeOfControls(c.ctl), uint64(0)
	switch c.kind {
	case kindLookup:
		body = 4 + 4
		for _, k := range c.rows.Keys {
			body += 4 + 8*uint64(len(k))
		}
		body += 4*uint64(len(c.rows.Values)) + 4 + 4*uint64(len(c.rows.State))
	case kindDense:
		body = 8 + 4
	case kindStage:
		u := c.update
		body = 8 + 8 + 8 + 8 + 8 + 4 + 8 + 4 + uint64(len(u.Source)) + 4 + uint64(len(u.Split)) + 5*4
		for _, k := range u.Keys {
			body += 4 + 8*uint64(len(k))
		}
		for _, k := range u.Counts {
			body += 4 + 4*uint64(len(k))
		}
		for _, k := range u.Grads {
			body += 4 + sizeOfGrads(gradsIn(c.precision, u.Op), len(k))
		}
		h.flags = byte(u.Op)
		body += 4*uint64(len(u.Dense)) + uint64(len(u.Trace))
		if err := checkNames(u.Source, u.Split); err != nil {
			return h, err
		}
	case kindAcquire:
		body = 8 + 4 + uint64(len(c.id.Source)) + 4 + uint64(len(c.id.Split))
		if err := checkNames(c.id.Source, c.id.Split); err != nil {
			return h, err
		}
	case kindClose:
		h.flags = bit(c.clean) * flagClean
	}
	for i := range c.ctl {
		x := &c.ctl[i]
		if err := checkNames(x.Split.Source, x.Split.Split); err != nil {
			return h, err
		}
		for k := range x.State {
			if err := checkNames(k); err != nil {
				return h, err
			}
		}
	}
	if ctl > math.MaxUint32 {
		return h, tooLarge("controls", ctl, math.MaxUint32, "worker state is stored with them")
	}
	h.ctlLen, h.bodyLen = uint32(ctl), body
	return h, nil
}

func checkNames(names ...string) error {
	for _, n := range names {
		if len(n) > maxName {
			return tooLarge("name", uint64(len(n)), maxName, "names of splits and worker state")
		}
	}
	return nil
}

// replySize returns the length of the reply's frame, or of the longest that there may be.
func (c *call) replySize() uint64 {
	n := uint64(headerLen + replyLen)
	switch c.kind {
	case kindLookup:
		size := sizeOfRows(c.precision, len(c.rows.State))
		for _, to := range [][][]float32{c.rows.Values, c.rows.State} {
			for _, v := range to {
				n += size * uint64(len(v))
			}
		}
	case kindDense:
		n += 8 + 4 + 4*uint64(len(c.dst))
	}
	return n
}

// put writes what follows the header.
func (c *call) put(e *encoder) {
	putControls(e, c.ctl)
	switch c.kind {
	case kindLookup:
		e.u32(uint32(len(c.rows.Keys)))
		e.u32(uint32(len(c.rows.Values)))
		putLens(e, c.rows.Keys)
		putLens(e, c.rows.Values)
		e.u32(uint32(len(c.rows.State)))
		putLens(e, c.rows.State)
		putAll(e, c.rows.Keys)
	case kindDense:
		e.u64(c.have)
		e.u32(uint32(len(c.dst)))
	case kindStage:
		u := c.update
		e.u64(c.epoch)
		e.u64(uint64(u.From))
		e.u64(uint64(u.To))
		e.u64(uint64(u.NumRows))
		e.u64(uint64(u.Time))
		e.u32(math.Float32bits(u.LR))
		e.u64(uint64(u.Examples))
		e.str(u.Source)
		e.str(u.Split)
		e.u32(uint32(len(u.Keys)))
		e.u32(uint32(len(u.Counts)))
		e.u32(uint32(len(u.Grads)))
		e.u32(uint32(len(u.Dense)))
		e.u32(uint32(len(u.Trace)))
		putLens(e, u.Keys)
		putLens(e, u.Counts)
		putLens(e, u.Grads)
		putAll(e, u.Keys)
		putAll(e, u.Counts)
		for _, g := range u.Grads {
			putGrads(e, gradsIn(c.precision, u.Op), g)
		}
		putNumbers(e, u.Dense)
		e.bytes(u.Trace)
	case kindAcquire:
		e.u64(c.epoch)
		e.str(c.id.Source)
		e.str(c.id.Split)
	}
}

// readReply reads the reply's body to where the call's results go.
func (c *call) readReply(d *decoder) error {
	c.reply.Cut, c.reply.Commits, c.reply.Own = d.u64(), d.u64(), d.u64()
	switch c.kind {
	case kindLookup:
		for _, v := range c.rows.Values {
			if sizeOfRows(c.precision, len(c.rows.State)) == 2 {
				readHalves(d, c.precision, v, 0)
			} else {
				readNumbers(d, v)
			}
		}
		for _, v := range c.rows.State {
			readNumbers(d, v)
		}
	case kindDense:
		c.version = d.u64()
		n := d.count(4)
		if d.err == nil && n != len(c.dst) && n != 0 {
			d.err = violation("%d dense values, asked for %d", n, len(c.dst))
		}
		if n > 0 {
			readNumbers(d, c.dst)
		}
	case kindAcquire:
		c.state = readSplitState(d)
	}
	return d.end()
}

// sizeOfRows is how many bytes a value of a row takes in a reply. What comes with the state of so many tables is what a worker computes on
// with, so that it is not rounded.
func sizeOfRows(p param.Precision, states int) uint64 {
	if p == param.Float32 || states > 0 {
		return 4
	}
	return 2
}

// gradsIn is the format of an update's gradients. What rows are to become is not rounded.
func gradsIn(p param.Precision, op param.Op) param.Precision {
	if op != param.Train {
		return param.Float32
	}
	return p
}

// sizeOfGrads is how many bytes n gradients take.
func sizeOfGrads(p param.Precision, n int) uint64 {
	if p == param.Float32 {
		return 4 * uint64(n)
	}
	return 4 + 2*uint64(n)
}

// putGrads writes gradients that belong together.
func putGrads(e *encoder, p param.Precision, g []float32) {
	if p == param.Float32 {
		putNumbers(e, g)
		return
	}
	k := p.Exponent(g)
	e.u32(uint32(int32(k)))
	putHalves(e, p, g, k)
}

// readGrads reads n gradients to dst, which grows as they arrive.
func readGrads(d *decoder, p param.Precision, dst []float32, n int) []float32 {
	if p == param.Float32 {
		return readSlice(d, dst, n)
	}
	k := int(int32(d.u32()))
	if d.err == nil && (k < param.MinExponent || k > param.MaxExponent || k != 0 && p != param.FP16) {
		d.err = violation("gradients in %s with the exponent %d", p, k)
	}
	return readHalfSlice(d, p, dst, n, k)
}

func putLens[T number](e *encoder, s [][]T) {
	for _, x := range s {
		e.u32(uint32(len(x)))
	}
}

func putAll[T number](e *encoder, s [][]T) {
	for _, x := range s {
		putNumbers(e, x)
	}
}

// readLens makes n slices of announced lengths: the lengths go to lens, room is made later.
func readLens(d *decoder, lens []int, n int) []int {
	lens = lens[:0]
	for range n {
		lens = append(lens, int(d.u32()))
		if d.err != nil {
			break
		}
	}
	return lens
}

// readAll reads slices of the given lengths into s, which is reused.
func readAll[T number](d *decoder, s [][]T, lens []int) [][]T {
	for len(s) < len(lens) {
		s = append(s, nil)
	}
	s = s[:len(lens)]
	for i, n := range lens {
		s[i] = readSlice(d, s[i], n)
	}
	return s
}

func putProgress(e *encoder, p ps.Progress) {
	e.u64(uint64(p.Position))
	e.u64(uint64(p.Rows))
	e.u64(uint64(p.Batches))
}

func readProgress(d *decoder) ps.Progress {
	return ps.Progress{Position: position.Position(d.u64()), Rows: int64(d.u64()), Batches: int64(d.u64())}
}

func putSplitState(e *encoder, s ps.SplitState) {
	putProgress(e, s.Applied)
	e.u32(uint32(len(s.Staged)))
	for _, p := range s.Staged {
		putProgress(e, p)
	}
}

func readSplitState(d *decoder) ps.SplitState {
	s := ps.SplitState{Applied: readProgress(d)}
	for range d.count(progressLen) {
		p := readProgress(d)
		if d.err != nil {
			break
		}
		s.Staged = append(s.Staged, p)
	}
	return s
}
