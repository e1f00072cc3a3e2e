package wire

import (
	"encoding/binary"
	"io"
	"slices"
	"unsafe"

	"github.com/monolith-go/monolith/model/param"
)

const (
	// growStep is how many bytes of a slice are made room for before any of them has arrived.
	growStep = 64 << 10
	// readSize is how much is read where less is wanted, bytes. What is longer is read to where it belongs.
	readSize = 16 << 10
	// maxName bounds names of splits, workers, jobs and keys of worker state, bytes.
	maxName = 64 << 10
	// maxNames bounds how many names of up to maxKept bytes a decoder remembers, so that it need not make the string again.
	maxNames = 4096
	maxKept  = 512
)

// decoder reads frames. It is for one goroutine. Room is made as bytes arrive, whatever the lengths in the frame say. The
// first error stays.
type decoder struct {
	from     io.Reader
	portable bool
	room     []byte
	rest     []byte // of room: what was read and not asked for
	left     uint64 // bytes of the frame that are not read yet
	names    map[string]string
	name     []byte
	few      [headerLen]byte // what is read in one go and is no slice
	halves   []uint16
	err      error
}

func newDecoder(from io.Reader) decoder {
	return decoder{from: from, portable: !littleEndian, names: map[string]string{}}
}

// next reads a header, waiting for a frame as long as it takes. limit bounds the frame's size.
func (d *decoder) next(limit uint64, setting string) (header, error) {
	var h header
	d.left = headerLen
	d.read(d.few[:])
	if d.err == nil {
		d.err = h.parse(&d.few)
	}
	if d.err == nil && h.size() > limit {
		d.err = tooLarge(h.kind.String(), h.size(), limit, setting)
	}
	if d.err != nil {
		return header{}, d.err
	}
	d.left = uint64(h.ctlLen) + h.bodyLen
	return h, nil
}

// end checks that all of the frame was read.
func (d *decoder) end() error {
	if d.err == nil && d.left > 0 {
		d.err = violation("%d bytes too many in a frame", d.left)
	}
	return d.err
}

// read fills p.
func (d *decoder) read(p []byte) {
	if d.err == nil && uint64(len(p)) > d.left {
		d.err = violation("frame ends %d bytes early", uint64(len(p))-d.left)
	}
	for len(p) > 0 && d.err == nil {
		n := copy(p, d.rest)
		d.rest = d.rest[n:]
		if n == 0 {
			if n = d.receive(p); n == 0 {
				continue
			}
		}
		p, d.left = p[n:], d.left-uint64(n)
	}
	if d.err != nil {
		clear(p) // a caller that looks at it before the error sees zeros
	}
}

// receive reads to p, where that is long, and returns how much, or else to room.
func (d *decoder) receive(p []byte) (n int) {
	if len(p) >= readSize {
		if n, d.err = d.from.Read(p); n > 0 {
			d.err = nil // it comes again
		}
		return n
	}
	if d.room == nil {
		d.room = make([]byte, readSize)
	}
	if n, d.err = d.from.Read(d.room); n > 0 {
		d.err = nil
	}
	d.rest = d.room[:n]
	return 0
}

func (d *decoder) u8() byte {
	b := d.few[:1]
	d.read(b)
	return b[0]
}

func (d *decoder) u32() uint32 {
	b := d.few[:4]
	d.read(b)
	return binary.LittleEndian.Uint32(b)
}

func (d *decoder) u64() uint64 {
	b := d.few[:8]
	d.read(b)
	return binary.LittleEndian.Uint64(b)
}

// count reads the number of things that take at least size bytes each of what is left.
func (d *decoder) count(size uint64) int {
	n := uint64(d.u32())
	if d.err == nil && n*size > d.left {
		d.err = violation("%d things of %d bytes, the frame has %d more", n, size, d.left)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// str reads a name. The same name gives the same string without an allocation.
func (d *decoder) str() string {
	n := d.count(1)
	if d.err == nil && n > maxName {
		d.err = violation("name of %d bytes, the limit is %d", n, maxName)
	}
	if d.err != nil {
		return ""
	}
	d.name = slices.Grow(d.name[:0], n)[:n]
	d.read(d.name)
	if d.err != nil {
		return ""
	}
	if s, ok := d.names[string(d.name)]; ok {
		return s
	}
	s := string(d.name)
	if n > maxKept {
		return s
	}
	if len(d.names) >= maxNames {
		clear(d.names)
	}
	d.names[s] = s
	return s
}

// blob reads bytes into memory of their own.
func (d *decoder) blob() []byte { return d.appendBytes([]byte{}, d.count(1)) }

// appendBytes appends n bytes to dst, which grows as they arrive.
func (d *decoder) appendBytes(dst []byte, n int) []byte {
	for n > 0 && d.err == nil {
		k := min(n, max(cap(dst)-len(dst), len(dst), growStep))
		dst, n = slices.Grow(dst, k)[:len(dst)+k], n-k
		d.read(dst[len(dst)-k:])
	}
	return dst
}

// fits reports whether n numbers of size bytes can still come.
func (d *decoder) fits(n int, size uint64) bool {
	if d.err == nil && uint64(n)*size > d.left {
		d.err = violation("%d numbers of %d bytes, the frame has %d more", n, size, d.left)
	}
	return d.err == nil
}

// readNumbers fills dst.
func readNumbers[T number](d *decoder, dst []T) {
	d.read(bytesOf(dst))
	if d.portable {
		fromWire(dst)
	}
}

// readHalves fills dst with numbers that come in a format of 16 bits.
func readHalves(d *decoder, p param.Precision, dst []float32, k int) {
	if d.halves == nil {
		d.halves = make([]uint16, halvesAtOnce)
	}
	for len(dst) > 0 {
		n := min(len(dst), halvesAtOnce)
		readNumbers(d, d.halves[:n])
		p.Decode(dst[:n], d.halves[:n], k)
		dst = dst[n:]
	}
}

// readHalfSlice is readSlice of numbers that come in a format of 16 bits.
func readHalfSlice(d *decoder, p param.Precision, dst []float32, n, k int) []float32 {
	dst = dst[:0]
	if !d.fits(n, 2) {
		return dst
	}
	for len(dst) < n && d.err == nil {
		more := min(n-len(dst), max(cap(dst)-len(dst), len(dst), growStep/4))
		dst = slices.Grow(dst, more)[:len(dst)+more]
		readHalves(d, p, dst[len(dst)-more:], k)
	}
	return dst
}

// readSlice reads n numbers into dst, which grows as they arrive.
func readSlice[T number](d *decoder, dst []T, n int) []T {
	dst = dst[:0]
	size := int(unsafe.Sizeof(*new(T)))
	if !d.fits(n, uint64(size)) {
		return dst
	}
	for len(dst) < n && d.err == nil {
		k := min(n-len(dst), max(cap(dst)-len(dst), len(dst), growStep/size))
		dst = slices.Grow(dst, k)[:len(dst)+k]
		readNumbers(d, dst[len(dst)-k:])
	}
	return dst
}
