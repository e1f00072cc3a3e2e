package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/arrowfile"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// rowStream is what a shard has of a table, in record batches.
type rowStream interface {
	// next returns the next rows, the first of which is row number first; they are valid until the next call. io.EOF ends them, and
	// repeats.
	next() (rows *table.Rows, first int64, err error)
	// seek goes to the rows that next returns row number row with, or to the end.
	seek(row int64) error
	// swap hands over the rows that next has returned, for memory that the next ones may use.
	swap(spare table.Rows) table.Rows
}

// merged are the rows of a chain: of each fid what the newest of its snapshots says. All of them have their rows and removed fids in
// the order of [table.Hash], so that they are read side by side.
type merged struct {
	levels        []*level // the newest first
	dim, stateDim int
	out           table.Rows
	row           int64 // number of the row that comes after out
	held          bool  // next returns out once more
	// gone are the removed fids among out, where tells is set: a batch may then have those alone.
	gone  []int64
	tells bool
}

// level is one snapshot of a chain.
type level struct {
	of    *Snapshot
	file  FileInfo
	rows  rowStream // nil: it has none
	buf   *table.Rows
	at    int // in buf
	gone  *removedFile
	keys  []int64
	keyAt int
	hash  uint64 // of the next fid
	isRow bool   // the next is a row
	isKey bool   // the next is a removed fid; a row of the same fid counts more
	last  uint64 // hash of the one before
	begun bool
	ended bool // rows are at their end
}

// newMerged makes the stream of a chain; tells: with removed fids.
func newMerged(chain []*Snapshot, tbl, shard int, tells bool) (*merged, error) {
	t := chain[0].info.Tables[tbl]
	m := &merged{dim: t.Dim(), stateDim: t.StateDim(), tells: tells}
	if chain[0].weightsOnly {
		m.stateDim = 0
	}
	for _, s := range chain {
		l := &level{of: s}
		rows, f, err := s.single(tbl, shard)
		if err != nil {
			return nil, err
		}
		if rows != nil {
			l.rows, l.file = rows, f
		}
		if src, f := s.find(KindRemoved, tbl, shard); src != nil {
			if l.gone, err = openRemoved(src); err != nil {
				return nil, s.named(f, err)
			}
		}
		m.levels = append(m.levels, l)
	}
	return m, m.seek(0)
}

// seek implements [rowStream]: it reads all rows before.
func (m *merged) seek(row int64) error {
	m.row, m.held = 0, false
	for _, l := range m.levels {
		if err := l.restart(); err != nil {
			return err
		}
	}
	for {
		rows, first, err := m.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if row < first+int64(len(rows.Keys)) || m.tells {
			m.held = true
			return nil
		}
	}
}

// next implements [rowStream].
func (m *merged) next() (*table.Rows, int64, error) {
	if m.held {
		m.held = false
		return &m.out, m.row - int64(len(m.out.Keys)), nil
	}
	m.out.Reset()
	m.gone = m.gone[:0]
	batch := batchRows(m.dim, m.stateDim)
	for len(m.out.Keys)+len(m.gone) < batch {
		l, err := m.newest()
		if err != nil {
			return nil, m.row, err
		}
		if l == nil {
			break
		}
		if !l.isRow {
			if m.tells {
				m.gone = append(m.gone, l.keys[l.keyAt])
			}
			if err := l.advance(); err != nil {
				return nil, m.row, err
			}
			continue
		}
		if err := m.take(l, batch-len(m.out.Keys)-len(m.gone)); err != nil {
			return nil, m.row, err
		}
	}
	n := len(m.out.Keys)
	if n+len(m.gone) == 0 {
		return nil, m.row, io.EOF
	}
	m.row += int64(n)
	return &m.out, m.row - int64(n), nil
}

// swap implements [rowStream].
func (m *merged) swap(spare table.Rows) (rows table.Rows) {
	rows, m.out = m.out, spare
	return rows
}

// newest returns the level whose fid comes next, the newest of those that have it, and passes over what older ones say of it; nil at the
// end.
func (m *merged) newest() (*level, error) {
	var found *level
	for _, l := range m.levels {
		if (l.isRow || l.isKey) && (found == nil || l.hash < found.hash) {
			found = l
		}
	}
	for _, l := range m.levels {
		if l != found && (l.isRow || l.isKey) && l.hash == found.hash {
			if err := l.advance(); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// take takes rows of a level, at most limit and one at least, up to where another one has something to say.
func (m *merged) take(from *level, limit int) error {
	bound, bounded := uint64(0), false
	for _, l := range m.levels {
		if l != from && (l.isRow || l.isKey) && (!bounded || l.hash < bound) {
			bound, bounded = l.hash, true
		}
	}
	b, first, n := from.buf, from.at, 0
	for {
		n++
		// Within the buffer the next row is known; what the level says of removed fids ends a run too.
		if from.isKey || n == limit || first+n == len(b.Keys) {
			break
		}
		if err := from.advance(); err != nil {
			return err
		}
		if !from.isRow || bounded && from.hash >= bound {
			m.append(b, first, n)
			return nil
		}
	}
	m.append(b, first, n)
	return from.advance()
}

func (m *merged) append(b *table.Rows, at, n int) {
	m.out.Keys = append(m.out.Keys, b.Keys[at:at+n]...)
	m.out.Times = append(m.out.Times, b.Times[at:at+n]...)
	m.out.Counts = append(m.out.Counts, b.Counts[at:at+n]...)
	m.out.Weights = append(m.out.Weights, b.Weights[at*m.dim:(at+n)*m.dim]...)
	m.out.State = append(m.out.State, b.State[at*m.stateDim:(at+n)*m.stateDim]...)
}

// restart goes to the first fid.
func (l *level) restart() error {
	l.buf, l.at, l.keys, l.keyAt, l.begun = nil, 0, nil, 0, false
	l.isRow, l.isKey, l.ended = false, false, l.rows == nil
	if l.rows != nil {
		if err := l.rows.seek(0); err != nil {
			return l.of.named(l.file, err)
		}
	}
	if l.gone != nil {
		l.gone.batch = 0
	}
	return l.load()
}

// advance goes to the next fid.
func (l *level) advance() error {
	if l.isRow {
		l.at++
	}
	if l.isKey {
		l.keyAt++
	}
	l.last, l.begun = l.hash, true
	return l.load()
}

// load finds which fid comes next.
func (l *level) load() error {
	for !l.ended && (l.buf == nil || l.at == len(l.buf.Keys)) {
		rows, first, err := l.rows.next()
		if errors.Is(err, io.EOF) {
			if first != l.file.Rows {
				return l.of.named(l.file, fmt.Errorf("%d rows of %d: %w", first, l.file.Rows, ErrCorrupt))
			}
			l.ended = true
			break
		}
		if err != nil {
			return l.of.named(l.file, err)
		}
		l.buf, l.at = rows, 0
	}
	for l.gone != nil && l.keyAt == len(l.keys) {
		keys, err := l.gone.next()
		if err != nil {
			return fmt.Errorf("snapshot: %s: removed fids: %w", l.of.info.Path, err)
		}
		l.keys, l.keyAt = keys, 0
		if len(keys) == 0 {
			break
		}
	}
	l.isRow, l.isKey = !l.ended && l.at < len(l.buf.Keys), l.keyAt < len(l.keys)
	switch {
	case l.isRow && l.isKey:
		row, key := table.Hash(l.buf.Keys[l.at]), table.Hash(l.keys[l.keyAt])
		l.hash, l.isRow, l.isKey = min(row, key), row <= key, key <= row
	case l.isRow:
		l.hash = table.Hash(l.buf.Keys[l.at])
	case l.isKey:
		l.hash = table.Hash(l.keys[l.keyAt])
	default:
		return nil
	}
	if l.begun && l.hash <= l.last {
		return fmt.Errorf("snapshot: %s: shard %d, table %d: %w", l.of.info.Path, l.file.Shard, l.file.Table, fmt.Errorf("rows or removed fids are not in the order of their hashes: %w", ErrCorrupt))
	}
	return nil
}

// removedFile is a file of fids whose rows are gone, read batch by batch.
type removedFile struct {
	f     *arrowfile.File
	batch int // the next
	keys  []int64
}

// openRemoved checks the footer. Errors: [ErrCorrupt], those of reading that are none.
func openRemoved(src fsx.File) (*removedFile, error) {
	f, err := openArrow(src, removedSchema)
	return &removedFile{f: f}, err
}

// next reads the next fids, which are valid until the next call; none at the end.
func (r *removedFile) next() ([]int64, error) {
	if r.batch == r.f.NumBatches() {
		return nil, nil
	}
	err := guard(func() error {
		b, err := batchOf(r.f, r.batch, 1, 2)
		if err != nil {
			return err
		}
		if b.rows > maxBatchRows || b.rows == 0 {
			return fmt.Errorf("%d fids, writers write 1 to %d: %w", b.rows, maxBatchRows, ErrCorrupt)
		}
		r.keys, err = values(b, r.keys, b.rows, 8, arrow.Int64Traits.CastToBytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record batch %d: %w", r.batch, err)
	}
	r.batch++
	return r.keys, nil
}
