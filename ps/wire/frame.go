package wire

import (
	"encoding/binary"
	"net"
	"unsafe"

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

const (
	// stageSize is the room of an encoder for what it copies, bytes.
	stageSize = 64 << 10
	// minKept is the least that is worth sending out of the memory where it lies, bytes; below it, a copy costs less.
	minKept = 8 << 10
	// atOnce is how much is written in one call of the kernel, bytes: whatever the length of a frame, the watch sees that it moves, and the other
	// side reads what is still in a cache.
	atOnce = 512 << 10
)

// encoder writes frames. It is for one goroutine at a time. The first error stays until the next begin.
type encoder struct {
	to       writer
	portable bool
	buf      []byte      // what was copied and is not written
	from     int         // where the part of buf begins that is not in pieces
	pieces   net.Buffers // what is to be written, in buf and elsewhere
	out      net.Buffers // pieces that are being written
	queued   int         // bytes of pieces
	left     uint64      // bytes of the frame that have not come yet
	halves   []uint16
	err      error
}

func newEncoder(to writer) encoder { return encoder{to: to, portable: !littleEndian} }

// begin starts a frame, of which h has the lengths.
func (e *encoder) begin(h header) {
	if e.buf == nil {
		e.buf = make([]byte, 0, stageSize)
	}
	e.reset()
	e.err, e.left = nil, h.size()-headerLen
	e.buf = e.buf[:headerLen]
	h.put((*[headerLen]byte)(e.buf))
}

// reset forgets what is not written.
func (e *encoder) reset() {
	clear(e.pieces)
	e.buf, e.from, e.pieces, e.queued = e.buf[:0], 0, e.pieces[:0], 0
}

// seal puts what was copied in its place among the pieces.
func (e *encoder) seal() {
	if p := e.buf[e.from:]; len(p) > 0 {
		e.pieces, e.queued, e.from = append(e.pieces, p), e.queued+len(p), len(e.buf)
	}
}

// flush writes all that there is.
func (e *encoder) flush() {
	e.seal()
	e.out = e.pieces
	e.err = e.to.writev(&e.out)
	e.out = nil
	e.reset()
}

// room reports whether n more bytes belong to the frame, and counts them.
func (e *encoder) room(n int) bool {
	if e.err == nil && uint64(n) > e.left {
		e.err = violation("frame is longer than was announced")
	}
	if e.err != nil {
		return false
	}
	e.left -= uint64(n)
	return true
}

// copied appends a copy of p, which is no longer than a stage.
func (e *encoder) copied(p []byte) {
	if !e.room(len(p)) {
		return
	}
	if len(e.buf)+len(p) > cap(e.buf) {
		if e.flush(); e.err != nil {
			return
		}
	}
	e.buf = append(e.buf, p...)
}

// bytes appends p, which must stay as it is until end.
func (e *encoder) bytes(p []byte) {
	if len(p) < minKept {
		e.copied(p)
		return
	}
	if !e.room(len(p)) {
		return
	}
	for len(p) > 0 && e.err == nil {
		e.seal()
		n := min(len(p), max(atOnce-e.queued, minKept))
		e.pieces, e.queued, p = append(e.pieces, p[:n]), e.queued+n, p[n:]
		if e.queued >= atOnce {
			e.flush()
		}
	}
}

func (e *encoder) u8(v byte) {
	b := [1]byte{v}
	e.copied(b[:])
}

func (e *encoder) u32(v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	e.copied(b[:])
}

func (e *encoder) u64(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	e.copied(b[:])
}

func (e *encoder) str(s string) {
	e.u32(uint32(len(s)))
	e.bytes(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// end writes the rest of the frame. The memory of what was appended is its owner's again.
func (e *encoder) end() error {
	if e.err == nil && e.left > 0 {
		e.err = violation("frame is shorter than was announced")
	}
	if e.err == nil && (len(e.buf) > 0 || len(e.pieces) > 0) {
		e.flush()
	}
	e.reset()
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
		if e.portable {
			putNumbers(e, e.halves[:n])
		} else {
			e.copied(bytesOf(e.halves[:n])) // they are written over
		}
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
