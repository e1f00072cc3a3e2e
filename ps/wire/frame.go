package wire

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc/mem"

	"github.com/monolith-go/monolith/model/param"
)

// kind is what a frame is.
type kind uint8

const (
	kindHello kind = iota + 1
	kindWelcome
	kindLookup
	kindDense
	kindStage
	kindControl
	kindAcquire
	kindClose
	kindReply
	kindError
	kindAlive
)

// String names the kind in errors.
func (k kind) String() string {
	names := [...]string{"none", "hello", "welcome", "lookup", "dense", "stage", "control", "acquire", "close", "reply", "error", "alive"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

const (
	frameMagic = 0x3153504d // "MPS1"
	headerLen  = 32
	// flagClean belongs to close.
	flagClean = 1
)

// header is the beginning of every frame; see the package comment.
type header struct {
	kind    kind
	flags   uint8
	seq     uint64
	numCtl  uint32
	ctlLen  uint32
	bodyLen uint64
}

func (h *header) size() uint64 { return headerLen + uint64(h.ctlLen) + h.bodyLen }

func (h *header) put(b *[headerLen]byte) {
	binary.LittleEndian.PutUint32(b[0:], frameMagic)
	b[4], b[5], b[6], b[7] = byte(h.kind), h.flags, 0, 0
	binary.LittleEndian.PutUint64(b[8:], h.seq)
	binary.LittleEndian.PutUint32(b[16:], h.numCtl)
	binary.LittleEndian.PutUint32(b[20:], h.ctlLen)
	binary.LittleEndian.PutUint64(b[24:], h.bodyLen)
}

// parse checks what can be checked without the rest of the frame.
func (h *header) parse(b *[headerLen]byte) error {
	if magic := binary.LittleEndian.Uint32(b[0:]); magic != frameMagic {
		return violation("frame begins with %#x instead of %#x", magic, frameMagic)
	}
	*h = header{
		kind: kind(b[4]), flags: b[5], seq: binary.LittleEndian.Uint64(b[8:]), numCtl: binary.LittleEndian.Uint32(b[16:]),
		ctlLen: binary.LittleEndian.Uint32(b[20:]), bodyLen: binary.LittleEndian.Uint64(b[24:]),
	}
	if h.kind < kindHello || h.kind > kindAlive {
		return violation("frame of unknown kind %d", h.kind)
	}
	if uint64(h.numCtl)*minControl > uint64(h.ctlLen) {
		return violation("%d controls in %d bytes", h.numCtl, h.ctlLen)
	}
	if h.bodyLen > 1<<62 {
		return violation("body of %d bytes", h.bodyLen)
	}
	return nil
}

// number is what bulk data is made of.
type number interface {
	int64 | uint32 | uint16 | float32
}

// littleEndian reports whether numbers in memory look as they do on the wire.
var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// bytesOf returns the memory of s.
func bytesOf[T number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// fromWire turns numbers whose memory was filled with bytes of the wire into the machine's.
func fromWire[T number](s []T) {
	b := bytesOf(s)
	switch s := any(s).(type) {
	case []int64:
		for i := range s {
			s[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case []uint32:
		for i := range s {
			s[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
	case []uint16:
		for i := range s {
			s[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
	case []float32:
		// As integers: a float register may change the bits of a NaN.
		u := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
		for i := range u {
			u[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
	}
}

// sender is the sending half of a stream.
type sender interface{ SendMsg(m any) error }

// encoder writes frames, cut into messages of chunkSize. It is for one goroutine at a time. The first error stays until
// the next begin.
type encoder struct {
	to       sender
	pool     *bufferPool
	portable bool
	msg      message
	buf      *[]byte // chunk being filled
	n        int     // bytes in it
	left     uint64  // bytes of the frame that are not in a chunk yet
	slab     []mem.Buffer
	sent     func() // called after every message; may be nil
	halves   []uint16
	err      error
}

func newEncoder(to sender, pool *bufferPool) encoder {
	return encoder{to: to, pool: pool, portable: !littleEndian}
}

// begin starts a frame, of which h has the lengths.
func (e *encoder) begin(h header) {
	e.err, e.left = nil, h.size()
	e.next()
	// Every buffer is longer than a header.
	h.put((*[headerLen]byte)(*e.buf))
	e.n = headerLen
}

// next takes a buffer for what is left.
func (e *encoder) next() {
	n := int(min(e.left, chunkSize))
	e.buf, e.n, e.left = e.pool.Get(n), 0, e.left-uint64(n)
}

// flush sends the chunk.
func (e *encoder) flush() {
	e.put(mem.NewBuffer(e.buf, e.pool))
	e.buf = nil
}

// put sends buffers as a message.
func (e *encoder) put(buffers ...mem.Buffer) {
	n := len(buffers)
	if len(e.slab) < n {
		// gRPC keeps the slice until it is written, so it cannot be reused; many are made at once.
		e.slab = make([]mem.Buffer, 64)
	}
	copy(e.slab, buffers)
	e.msg.out, e.slab = e.slab[:n:n], e.slab[n:]
	e.err = e.to.SendMsg(&e.msg)
	e.msg.out = nil
	if e.sent != nil {
		e.sent()
	}
}

// minKept is the least that is worth sending out of the memory where it lies; below it, a copy costs less.
const minKept = 16 << 10

// outbox is memory that values are sent from without a copy. It is not written to before gRPC has given all of it back.
type outbox struct {
	values []float32
	pieces [][]byte
	out    atomic.Int32 // pieces that gRPC holds
}

var _ mem.BufferPool = (*outbox)(nil)

// Get implements [mem.BufferPool]; nobody calls it.
func (o *outbox) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements [mem.BufferPool]: a piece comes back.
func (o *outbox) Put(*[]byte) { o.out.Add(-1) }

// free returns an outbox that nothing is being sent from: o, where it is one. If not, the client asks again before it has its answer, or a
// connection ended with it, and the memory is gRPC's until it lets go of it.
func (o *outbox) free() *outbox {
	if o == nil || o.out.Load() > 0 {
		return &outbox{}
	}
	return o
}

// cut makes pieces of the values of a chunk's size, the last no smaller than gRPC gives back.
func (o *outbox) cut() {
	o.pieces = o.pieces[:0]
	for b := bytesOf(o.values); len(b) > 0; {
		n := chunkSize
		if len(b) < chunkSize+tierSize[0] {
			n = len(b)
		}
		o.pieces, b = append(o.pieces, b[:n:n]), b[n:]
	}
}

// send sends what is encoded and then all values of an outbox, which end the frame.
func (e *encoder) send(o *outbox) {
	if e.err != nil {
		return
	}
	if size := 4 * uint64(len(o.values)); e.portable || size < minKept || e.left+uint64(len(*e.buf)-e.n) != size {
		putNumbers(e, o.values)
		return
	}
	*e.buf, e.left = (*e.buf)[:e.n], 0
	o.cut()
	o.out.Add(int32(len(o.pieces)))
	for i := range o.pieces {
		b := mem.NewBuffer(&o.pieces[i], o)
		switch {
		case e.err != nil:
			b.Free()
		case i == 0: // the head goes with the first
			e.put(mem.NewBuffer(e.buf, e.pool), b)
			e.buf = nil
		default:
			e.put(b)
		}
	}
}

// bytes appends p.
func (e *encoder) bytes(p []byte) {
	for len(p) > 0 && e.err == nil {
		k := copy((*e.buf)[e.n:], p)
		e.n += k
		p = p[k:]
		if e.n == len(*e.buf) && e.left > 0 {
			if e.flush(); e.err == nil {
				e.next()
			}
		} else if k == 0 {
			e.err = violation("frame is longer than was announced")
		}
	}
}

func (e *encoder) u8(v byte) {
	b := [1]byte{v}
	e.bytes(b[:])
}

func (e *encoder) u32(v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	e.bytes(b[:])
}

func (e *encoder) u64(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	e.bytes(b[:])
}

func (e *encoder) str(s string) {
	e.u32(uint32(len(s)))
	e.bytes(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// end sends the last chunk.
func (e *encoder) end() error {
	switch {
	case e.err != nil || e.buf == nil:
	case e.left > 0 || e.n != len(*e.buf):
		e.err = violation("frame is shorter than was announced")
	default:
		e.flush()
	}
	if e.buf != nil {
		e.pool.Put(e.buf)
		e.buf = nil
	}
	return e.err
}

// halvesAtOnce is how many numbers of 16 bits are converted at a time: as many as stay in the nearest cache.
const halvesAtOnce = 2048

// putHalves writes values in a format of 16 bits.
func putHalves(e *encoder, p param.Precision, values []float32, k int) {
	if e.halves == nil {
		e.halves = make([]uint16, halvesAtOnce)
	}
	for len(values) > 0 {
		n := min(len(values), halvesAtOnce)
		p.Encode(e.halves[:n], values[:n], k)
		putNumbers(e, e.halves[:n])
		values = values[n:]
	}
}

func putNumbers[T number](e *encoder, s []T) {
	if !e.portable {
		e.bytes(bytesOf(s))
		return
	}
	switch s := any(s).(type) {
	case []int64:
		for _, v := range s {
			e.u64(uint64(v))
		}
	case []uint32:
		for _, v := range s {
			e.u32(v)
		}
	case []uint16:
		for _, v := range s {
			e.u8(byte(v))
			e.u8(byte(v >> 8))
		}
	case []float32:
		if len(s) > 0 {
			for _, v := range unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(s))), len(s)) {
				e.u32(v)
			}
		}
	}
}
