package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wal"
)

// Records of the log are numbers of 8 bytes, little endian, texts after their length, and slices after theirs:
//
//	generation  generation seen shards; seen: the newest snapshot when the log was begun
//	owner       session source split epoch worker
//	stage       session source split epoch from to rows time lr examples [tables: keys counts grads]... dense trace
//	edit        session source split epoch operation, and from to ... as of stage
//	commit      session source split epoch to
//	abort       session source split epoch
//	leave       session
//	state       0 or 1 (set) key value
//	term        term: of the pair of processes that the shard has

func appendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendText(b []byte, s string) []byte { return append(appendU64(b, uint64(len(s))), s...) }

func appendOwner(b []byte, session uint64, id ps.SplitID, epoch uint64) []byte {
	return appendU64(appendText(appendText(appendU64(b, session), id.Source), id.Split), epoch)
}

// appendStaged appends what the record of a staged update has, and returns its kind.
func appendStaged(head []byte, parts [][]byte, session, epoch uint64, u *param.Update) (kind byte, _ []byte, _ [][]byte) {
	kind, head = recStage, appendOwner(head, session, ps.SplitID{Source: u.Source, Split: u.Split}, epoch)
	if u.Op != param.Train {
		kind, head = recEdit, appendU64(head, uint64(u.Op))
	}
	head, parts = appendUpdate(head, parts, u)
	return kind, head, parts
}

// appendUpdate appends an update's numbers to head and all of it, head first, as parts that point into head and u.
func appendUpdate(head []byte, parts [][]byte, u *param.Update) ([]byte, [][]byte) {
	for _, v := range []uint64{uint64(u.From), uint64(u.To), uint64(u.NumRows), uint64(u.Time), uint64(math.Float32bits(u.LR)), uint64(u.Examples), uint64(len(u.Keys))} {
		head = appendU64(head, v)
	}
	// All lengths come first, so that head is whole before anything points into it.
	for t := range u.Keys {
		head = appendU64(head, uint64(len(u.Keys[t])))
		head = appendU64(head, uint64(len(u.Grads[t])))
	}
	head = appendU64(appendU64(head, uint64(len(u.Dense))), uint64(len(u.Trace)))
	parts = append(parts, head)
	for t := range u.Keys {
		parts = append(parts, bytesOf(u.Keys[t]), bytesOf(u.Counts[t]), bytesOf(u.Grads[t]))
	}
	return head, append(parts, bytesOf(u.Dense), u.Trace)
}

// bytesOf is the memory of numbers. The log is read on the machine that wrote it, or one of its kind: a file of another
// byte order has other checksums' lengths and is refused as damaged.
func bytesOf[T int64 | uint32 | float32](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

var errRecord = errors.New("record does not fit")

// logDecoder applies records to a shard. Its buffers are reused.
type logDecoder struct {
	shard *Shard
	// generation is the newest that a record says, 0 for none; so are seen and term.
	generation, seen, term uint64

	b   []byte
	bad bool
	u   param.Update
}

func (d *logDecoder) u64() uint64 {
	if len(d.b) < 8 {
		d.b, d.bad = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *logDecoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *logDecoder) text() string { return string(d.take(d.u64())) }

// into copies numbers to dst, because records are not aligned.
func into[T int64 | uint32 | float32](d *logDecoder, dst []T, n uint64) []T {
	size := uint64(unsafe.Sizeof(*new(T)))
	if n > uint64(len(d.b))/size {
		d.b, d.bad = nil, true
		return dst[:0]
	}
	if uint64(cap(dst)) < n {
		dst = make([]T, n)
	}
	dst = dst[:n]
	copy(bytesOf(dst), d.take(n*size))
	return dst
}

// apply applies a record. Errors: [wal.ErrCorrupt] for what no shard writes, and for what contradicts the records before;
// [ps.ErrFull].
func (d *logDecoder) apply(kind byte, payload []byte) (err error) {
	s := d.shard
	d.b, d.bad = payload, false
	switch kind {
	case recGeneration:
		generation, seen, _ := d.u64(), d.u64(), d.u64()
		d.generation, d.seen = max(d.generation, generation), max(d.seen, seen)
	case recTerm:
		d.term = max(d.term, d.u64())
	case recLeave:
		if session := d.u64(); !d.bad {
			s.Leave(session, true)
		}
	case recState:
		set, key := d.u64(), d.text()
		value := append([]byte{}, d.take(uint64(len(d.b)))...)
		if set == 0 {
			value = nil
		}
		if !d.bad {
			s.SetState(key, value)
		}
	case recOwner, recStage, recEdit, recCommit, recAbort:
		err = d.owned(s, kind)
	default:
		err = fmt.Errorf("kind %d is not known", kind)
	}
	if d.bad || err == nil && len(d.b) > 0 {
		err = errRecord
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ps.ErrFull): // the machine's fault, not the log's
		return fmt.Errorf("ps: shard %d: record of kind %d: %w", s.index, kind, err)
	}
	return fmt.Errorf("ps: shard %d: record of kind %d: %w: %w", s.index, kind, err, wal.ErrCorrupt)
}

// shardsIn returns how many shards there are by the record that a log, or what follows a border, begins with. Errors: [wal.ErrCorrupt] for
// another record.
func shardsIn(kind byte, payload []byte) (int, error) {
	d := logDecoder{b: payload}
	_, _, n := d.u64(), d.u64(), d.u64()
	if kind != recGeneration || d.bad || n < 1 || n > ps.NumBuckets {
		return 0, fmt.Errorf("ps: a log that begins with a record of kind %d, for %d shards: %w", kind, n, wal.ErrCorrupt)
	}
	return int(n), nil
}

func (d *logDecoder) owned(s *Shard, kind byte) error {
	session := d.u64()
	id := ps.SplitID{Source: d.text(), Split: d.text()}
	epoch := d.u64()
	switch kind {
	case recOwner:
		worker := d.text()
		if d.bad {
			return nil
		}
		if s.sessions[session] == nil {
			s.Open(session, worker)
		}
		// Written again after a cut it has no effect.
		var stale *ps.EpochError
		if _, err := s.Acquire(session, id, epoch); err != nil && !errors.As(err, &stale) {
			return err
		}
	case recStage, recEdit:
		op := uint64(param.Train)
		if kind == recEdit {
			op = d.u64()
		}
		if op >= uint64(param.NumOps) {
			return fmt.Errorf("%s: operation %d is not known", id, op)
		}
		d.u.Op = param.Op(op)
		d.update(id)
		if d.bad {
			return nil
		}
		return s.Stage(session, epoch, &d.u)
	case recCommit:
		to := int64(d.u64())
		if d.bad {
			return nil
		}
		_, err := s.Controls(session, []ps.Control{{Kind: ps.Commit, Split: id, Epoch: epoch, To: to}})
		return err
	case recAbort:
		if d.bad {
			return nil
		}
		_, err := s.Controls(session, []ps.Control{{Kind: ps.Abort, Split: id, Epoch: epoch}})
		return err
	}
	return nil
}

// update reads an update into d.u.
func (d *logDecoder) update(id ps.SplitID) {
	u := &d.u
	u.Source, u.Split = id.Source, id.Split
	u.From, u.To, u.NumRows, u.Time = int64(d.u64()), int64(d.u64()), int(d.u64()), int64(d.u64())
	u.LR, u.Examples = math.Float32frombits(uint32(d.u64())), int64(d.u64())
	n := d.u64()
	if n > uint64(len(d.b))/16 { // of the lengths
		d.b, d.bad = nil, true
		return
	}
	lens := make([][2]uint64, n)
	for t := range lens {
		lens[t] = [2]uint64{d.u64(), d.u64()}
	}
	dense, trace := d.u64(), d.u64()
	for len(u.Keys) < int(n) {
		u.Keys, u.Counts, u.Grads = append(u.Keys, nil), append(u.Counts, nil), append(u.Grads, nil)
	}
	u.Keys, u.Counts, u.Grads = u.Keys[:n], u.Counts[:n], u.Grads[:n]
	for t, l := range lens {
		u.Keys[t], u.Counts[t], u.Grads[t] = into(d, u.Keys[t], l[0]), into(d, u.Counts[t], l[0]), into(d, u.Grads[t], l[1])
	}
	u.Dense = into(d, u.Dense, dense)
	u.Trace = append(u.Trace[:0], d.take(trace)...)
}

// update describes a staged batch as the update it came from.
func (b *batch) update(u *param.Update, id ps.SplitID) {
	u.Source, u.Split, u.From, u.To, u.NumRows, u.LR, u.Examples = id.Source, id.Split, b.from, b.to, b.rows, b.lr, b.examples
	u.Keys, u.Counts, u.Grads, u.Dense, u.Trace = u.Keys[:0], u.Counts[:0], u.Grads[:0], b.dense, b.trace
	for t := range b.tables {
		d := &b.tables[t]
		u.Keys, u.Counts, u.Grads = append(u.Keys, d.Keys), append(u.Counts, d.Counts), append(u.Grads, d.Grads)
		u.Op, u.Time = d.Op, d.Time
	}
}
