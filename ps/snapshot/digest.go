package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps/table"
)

// Digest names what shards hold, however it is spread over them and in whatever order it is read: the sum modulo 2^256
// of the SHA-256 of every record. A record is a kind byte followed by its fields, integers as 8 bytes little endian,
// floats as the 4 bytes of their bits, texts and lists after their length:
//
//	row    'r' table fid time count weights state
//	fid without a row that is counted  'w' table fid time count
//	cells of a hash filter             'f' table key time count
//	dense  'd' name weights state
//	split  'p' source split position rows batches
//	state  's' key value; of a trace ([score.Records]) the records alone, whatever their heads are called
//
// The zero value is the digest of nothing. It is not for concurrent use.
type Digest struct {
	sum [4]uint64 // little endian words
	buf []byte
	// padded are the records that are digested at once.
	padded []byte
}

// Rows adds rows of a table, which has dim weights and stateDim float32 of state a row.
func (d *Digest) Rows(name string, dim, stateDim int, rows *table.Rows) {
	head := appendText(append(d.buf[:0], 'r'), name)
	n := len(head)
	done := d.inLanes(head, dim, stateDim, rows)
	for i := done; i < len(rows.Keys); i++ {
		b := binary.LittleEndian.AppendUint64(head[:n], uint64(rows.Keys[i]))
		b = binary.LittleEndian.AppendUint64(b, uint64(rows.Times[i]))
		b = binary.LittleEndian.AppendUint64(b, rows.Counts[i])
		b = appendFloats(b, rows.Weights[i*dim:(i+1)*dim])
		b = appendFloats(b, rows.State[i*stateDim:(i+1)*stateDim])
		d.add(b)
		head = b
	}
	d.buf = head
}

// Waiting adds what a table has of fids that are counted and have no row, in files of a kind that [Counted] gives.
func (d *Digest) Waiting(kind Kind, name string, rows *table.Rows) {
	letter := byte('w')
	if kind == KindFilter {
		letter = 'f'
	}
	head := appendText(append(d.buf[:0], letter), name)
	n := len(head)
	for i, fid := range rows.Keys {
		head = binary.LittleEndian.AppendUint64(head[:n], uint64(fid))
		head = binary.LittleEndian.AppendUint64(head, uint64(rows.Times[i]))
		head = binary.LittleEndian.AppendUint64(head, rows.Counts[i])
		d.add(head)
	}
	d.buf = head
}

// Dense adds a dense tensor.
func (d *Digest) Dense(t Tensor) {
	b := appendText(append(d.buf[:0], 'd'), t.Name)
	b = appendFloats(b, t.Weights)
	d.buf = appendFloats(b, t.State)
	d.add(d.buf)
}

// Split adds the progress of a split.
func (d *Digest) Split(source, split string, p Progress) {
	b := appendText(append(d.buf[:0], 'p'), source)
	b = appendText(b, split)
	for _, v := range []int64{int64(p.Position), p.Rows, p.Batches} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	d.buf = b
	d.add(b)
}

// SourceState begins the keys of worker state that sources keep of their splits. It says where records lie, not what was
// learnt of them, so digests leave it out.
const SourceState = "source/"

// TotalsState is the key of the sums over all that was predicted. What they are sums of is in the trace, and in the rows; digests leave it out.
const TotalsState = "totals"

// traceState is the key of the predictions of the last examples.
const traceState = "trace"

// State adds a blob of worker state.
func (d *Digest) State(key string, value []byte) {
	if strings.HasPrefix(key, SourceState) || key == TotalsState {
		return
	}
	if key == traceState {
		value = score.Records(value)
	}
	b := appendText(append(d.buf[:0], 's'), key)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	d.buf = append(b, value...)
	d.add(d.buf)
}

// Add adds what o has digested.
func (d *Digest) Add(o *Digest) {
	var carry uint64
	for i := range d.sum {
		d.sum[i], carry = bits.Add64(d.sum[i], o.sum[i], carry)
	}
}

// AppendBinary appends the 32 bytes of the digest, for [Digest.UnmarshalBinary].
func (d *Digest) AppendBinary(b []byte) ([]byte, error) {
	for _, v := range d.sum {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b, nil
}

// UnmarshalBinary takes up what AppendBinary wrote.
func (d *Digest) UnmarshalBinary(b []byte) error {
	if len(b) != 8*len(d.sum) {
		return fmt.Errorf("snapshot: digest of %d bytes: %w", len(b), ErrCorrupt)
	}
	for i := range d.sum {
		d.sum[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return nil
}

// String is 64 hexadecimal digits, most significant first.
func (d *Digest) String() string {
	var b [32]byte
	for i, v := range d.sum {
		binary.BigEndian.PutUint64(b[24-8*i:], v)
	}
	return hex.EncodeToString(b[:])
}

func (d *Digest) add(record []byte) {
	h := sha256.Sum256(record)
	var carry uint64
	for i := range d.sum {
		d.sum[i], carry = bits.Add64(d.sum[i], binary.BigEndian.Uint64(h[24-8*i:]), carry)
	}
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendFloats(b []byte, f []float32) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f)))
	n := len(b)
	b = slices.Grow(b, 4*len(f))[:n+4*len(f)]
	for i, to := 0, b[n:]; i < len(f) && len(to) >= 4; i, to = i+1, to[4:] {
		binary.LittleEndian.PutUint32(to, math.Float32bits(f[i]))
	}
	return b
}
