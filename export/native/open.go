package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// Export is an open export. Its methods may overlap, but for Close. It is a store that batches are looked up in, as shards are ([Export.Lookup],
// [Export.Dense]).
type Export struct {
	dir    string
	model  *export.Model
	sum    uint32
	files  []file
	tables [][]*slab // by table, in the order of their hashes

	// fault is why a lookup found no memory behind a mapping.
	fault atomic.Pointer[error]
	// looking guards the time of a slab's written.
	looking sync.Mutex
}

// slab is an open file of rows.
type slab struct {
	described
	mapped    []byte
	is        fs.FileInfo // of the file that is mapped; nil: none is
	written   time.Time   // when the bytes that are known to be those of the export were written
	weights   []float32
	ids       []int64
	directory []uint32
}

// littleEndian refuses a machine whose numbers do not lie in memory as they do in files.
func littleEndian() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return fmt.Errorf("native: numbers of this machine are big endian: %w", errors.ErrUnsupported)
	}
	return nil
}

// Open opens an export of the machine's disk. Of rows nothing but the ends of the files is read, so that it takes no longer for many: manifest, dense weights and the
// places of the rows are verified, the rows themselves by [Export.Verify] alone. Errors: [ErrNone], [ErrVersion], [ErrCorrupt], which names
// the file; the context's; [errors.ErrUnsupported] where numbers are big endian.
func Open(ctx context.Context, dir string) (*Export, error) { return open(ctx, dir, nil) }

// OpenPart is Open for the rows of one part alone: files that have none need not be there. Ids of other parts are said to have no row. Errors: those of Open.
func OpenPart(ctx context.Context, dir string, part Part) (*Export, error) {
	return open(ctx, dir, &part)
}

func open(ctx context.Context, dir string, part *Part) (_ *Export, err error) {
	if err := littleEndian(); err != nil {
		return nil, err
	}
	m, model, err := openManifest(ctx, dir)
	if err != nil {
		return nil, err
	}
	e := &Export{dir: dir, model: model, sum: m.Checksum, files: m.Files, tables: make([][]*slab, len(model.Tables))}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	all := make([][]described, len(model.Tables))
	for _, f := range m.Files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if f.Table < 0 {
			continue
		}
		if !part.needs(f) {
			all[f.Table] = append(all[f.Table], described{file: f})
			continue
		}
		s, err := openSlab(ctx, filepath.Join(dir, filepath.FromSlash(f.Name)), f)
		if err != nil {
			return nil, named(dir, f.Name, err)
		}
		e.tables[f.Table] = append(e.tables[f.Table], s)
		all[f.Table] = append(all[f.Table], s.described)
	}
	for i, t := range model.Tables {
		if err := checkTable(all[i], t, model.Graph.Layout().Tables[i].Dim()); err != nil {
			return nil, fmt.Errorf("native: %s: %w: %w", dir, err, ErrCorrupt)
		}
	}
	return e, nil
}

// OpenModel reads of an export what is no row: the model with its dense weights, verified. manifest is as [Export.Manifest] has it. The files of rows need not be there. Errors: [ErrNone], [ErrVersion],
// [ErrCorrupt]; the context's.
func OpenModel(ctx context.Context, dir string) (_ *export.Model, manifest uint32, err error) {
	m, model, err := openManifest(ctx, dir)
	if err != nil {
		return nil, 0, err
	}
	return model, m.Checksum, nil
}

// openManifest reads the manifest and the dense weights.
func openManifest(ctx context.Context, dir string) (*manifest, *export.Model, error) {
	b, err := fsx.ReadFile(ctx, fsx.Local{}, filepath.Join(dir, ManifestName), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("native: %s: %w: %w", dir, err, ErrNone)
	}
	if err != nil {
		return nil, nil, named(dir, ManifestName, err)
	}
	m, model, err := decodeManifest(b)
	if err != nil {
		return nil, nil, named(dir, ManifestName, err)
	}
	for _, f := range m.Files {
		if f.Table >= 0 {
			continue
		}
		if model.Dense, err = readDense(ctx, filepath.Join(dir, f.Name), f, model.Graph.Layout().DenseLen()); err != nil {
			return nil, nil, named(dir, f.Name, err)
		}
	}
	return m, model, nil
}

// named says in which file of an export an error is.
func named(dir, name string, err error) error {
	if fsx.Damage(err) && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	return fmt.Errorf("native: %s: %w", filepath.Join(dir, name), err)
}

func readDense(ctx context.Context, name string, f file, n int) ([]float32, error) {
	if f.Bytes != 4*int64(n) {
		return nil, fmt.Errorf("%d bytes for %d weights: %w", f.Bytes, n, ErrCorrupt)
	}
	b, err := fsx.ReadFile(ctx, fsx.Local{}, name, f.Bytes)
	if err != nil {
		return nil, err
	}
	if sum := crc32.Checksum(b, castagnoli); int64(len(b)) != f.Bytes || sum != f.CRC32C {
		return nil, fmt.Errorf("%d bytes of %d with the checksum %08x, not %08x: %w", len(b), f.Bytes, sum, f.CRC32C, ErrCorrupt)
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out, nil
}

// openSlab maps a file of rows.
func openSlab(ctx context.Context, name string, f file) (_ *slab, err error) {
	in, err := fsx.Local{}.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	size := in.Info().Size
	if size != f.Bytes {
		err = fmt.Errorf("%d bytes of %d: %w", size, f.Bytes, ErrCorrupt)
	}
	s := &slab{described: described{file: f}}
	if err == nil {
		s.footer, err = readFooter(in, size)
	}
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	if s.mapped, s.is, err = mapFile(name, size); err != nil {
		return nil, err
	}
	if s.is != nil {
		s.written = s.is.ModTime()
	}
	at := func(offset int64) unsafe.Pointer { return unsafe.Pointer(&s.mapped[offset]) }
	// The footer was checked against the size, and a mapping begins at a page.
	s.weights = unsafe.Slice((*float32)(at(headBytes)), s.footer.Rows*s.Dim)
	s.ids = unsafe.Slice((*int64)(at(s.idsAt())), s.footer.Rows)
	s.directory = unsafe.Slice((*uint32)(at(s.directoryAt())), s.Parts+1)
	return s, nil
}

// Model is the model, with its dense weights. It belongs to the export.
func (e *Export) Model() *export.Model { return e.model }

// Manifest is the checksum that the manifest has of itself, which tells exports of a model from each other.
func (e *Export) Manifest() uint32 { return e.sum }

// PartOf is in which of n parts an id is, from 0.
func PartOf(id int64, n int) int { return partOf(table.Hash(id), n) }

// Changed is why rows cannot be read any more as they were exported: the disk did not give one to a lookup, or a file that is mapped was written again in its place, which changes what is
// mapped. Of a file that was written since, all bytes are read and compared, as [Export.Verify] does. One that was removed, or whose name another file has got, is mapped as it was. Errors:
// [ErrCorrupt], which names the file; the context's.
func (e *Export) Changed(ctx context.Context) error {
	if fault := e.fault.Load(); fault != nil {
		return *fault
	}
	e.looking.Lock()
	defer e.looking.Unlock()
	var buf []byte
	for _, slabs := range e.tables {
		for _, s := range slabs {
			if s.is == nil {
				continue
			}
			name := filepath.Join(e.dir, filepath.FromSlash(s.Name))
			now, err := os.Stat(name)
			switch {
			case err != nil || !os.SameFile(now, s.is):
				continue
			case now.Size() != s.Bytes:
				return named(e.dir, s.Name, fmt.Errorf("%d bytes of %d: %w", now.Size(), s.Bytes, ErrCorrupt))
			case now.ModTime().Equal(s.written):
				continue
			}
			if buf == nil {
				buf = make([]byte, verifyBytes)
			}
			if err := s.verify(ctx, name, buf, func(int) error { return nil }); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return named(e.dir, s.Name, fmt.Errorf("it was written again in its place at %s: %w", now.ModTime().UTC().Format(time.RFC3339), err))
			}
			s.written = now.ModTime() // of before it was read: what is written meanwhile is looked at the next time
		}
	}
	return nil
}

// Close gives the memory back. Nothing may be looked up from then on.
func (e *Export) Close() error {
	var errs []error
	for _, slabs := range e.tables {
		for _, s := range slabs {
			errs = append(errs, unmapFile(s.mapped))
		}
	}
	e.tables = nil
	return errors.Join(errs...)
}

// few is how many ids of a part are compared one by one.
const few = 32

// part returns where the ids of the part of a hash are. ok is false where the directory cannot be right.
func (s *slab) part(h uint64) (from, to uint32, ok bool) {
	if h < s.First || h > s.Last {
		return 0, 0, true
	}
	p := (h - s.First) >> (s.Shift & 63)
	from, to = s.directory[p], s.directory[p+1]
	return from, to, from <= to && int64(to) <= int64(len(s.ids))
}

// find returns the number of the row of an id, which would be among the ids [from, to); below 0: there is none.
func (s *slab) find(h uint64, id int64, from, to uint32) int {
	ids := s.ids[from:to]
	if len(ids) > few {
		i := sort.Search(len(ids), func(i int) bool { return table.Hash(ids[i]) >= h })
		if i < len(ids) && ids[i] == id {
			return int(from) + i
		}
		return -1
	}
	for i, k := range ids {
		if k == id {
			return int(from) + i
		}
	}
	return -1
}

// slabOf returns the slab that a hash would be in; nil: it is below all.
func slabOf(slabs []*slab, h uint64) *slab {
	lo, hi := 0, len(slabs)
	for lo < hi {
		if mid := (lo + hi) / 2; slabs[mid].First <= h {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil
	}
	return slabs[lo-1]
}

// Find writes the weights of ids of a table, [len(ids), dim], as training has them, and returns how many of the ids have a row; the others get
// what training would begin theirs with ([export.Model].Initial). has, if not nil, is as long as ids and is told of each. It allocates nothing.
// Errors: [ErrCorrupt] where the index cannot be right, or the disk does not give a row; dst is not whole then.
func (e *Export) Find(tbl int, ids []int64, dst []float32, has []bool) (found int, err error) {
	dim := e.model.Graph.Layout().Tables[tbl].Dim()
	if len(dst) != dim*len(ids) || has != nil && len(has) != len(ids) {
		return 0, fmt.Errorf("native: %d numbers and %d marks for %d ids of %d", len(dst), len(has), len(ids), dim)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if lost := faulted(recover()); lost != nil {
			fault := fmt.Errorf("native: %s: table %s: %w", e.dir, e.model.Tables[tbl].Name, lost)
			e.fault.CompareAndSwap(nil, &fault)
			found, err = 0, fault
		}
	}()
	for from := 0; from < len(ids); from += group {
		to := min(from+group, len(ids))
		var marks []bool
		if has != nil {
			marks = has[from:to]
		}
		n, err := e.findGroup(tbl, dim, ids[from:to], dst[from*dim:to*dim], marks)
		if err != nil {
			return 0, err
		}
		found += n
	}
	return found, nil
}

// faulted makes an error of a fault of the memory, which a file that becomes shorter while it is mapped is, or a bad sector. Other panics continue.
func faulted(recovered any) error {
	switch recovered.(type) {
	case nil:
		return nil
	case interface{ Addr() uintptr }:
		return fmt.Errorf("the disk does not give back what is mapped: %w", ErrCorrupt)
	}
	panic(recovered)
}

// group is how many ids a lookup takes through its stages together: the first touch of every line of the directory, then of the ids, then of every row, overlap
// in the memory system instead of waiting for each other.
const group = 64

// findGroup is Find for at most a group of ids.
func (e *Export) findGroup(tbl, dim int, ids []int64, dst []float32, has []bool) (found int, err error) {
	var in [group]*slab
	var hashes [group]uint64
	var from, to [group]uint32
	var rows [group]int
	for i, id := range ids {
		hashes[i] = table.Hash(id)
		if in[i] = slabOf(e.tables[tbl], hashes[i]); in[i] == nil {
			continue
		}
		var ok bool
		if from[i], to[i], ok = in[i].part(hashes[i]); !ok {
			return 0, fmt.Errorf("native: %s: its directory is not in order at hash %d: %w", filepath.Join(e.dir, in[i].Name), hashes[i], ErrCorrupt)
		}
	}
	first := float32(0)
	for i, id := range ids {
		if rows[i] = -1; from[i] < to[i] {
			rows[i] = in[i].find(hashes[i], id, from[i], to[i])
		}
		if rows[i] >= 0 {
			first += in[i].weights[rows[i]*dim]
		}
	}
	touched(first)
	for i, id := range ids {
		out := dst[i*dim:][:dim]
		if rows[i] >= 0 {
			copy(out, in[i].weights[rows[i]*dim:][:dim])
			found++
		} else {
			e.model.Initial(tbl, id, out)
		}
		if has != nil {
			has[i] = rows[i] >= 0
		}
	}
	return found, nil
}

// touched keeps the compiler from dropping loads that only bring lines into the cache.
//
//go:noinline
func touched(float32) {}

// Lookup fills rows.Values for rows.Keys, as a session with shards does. Errors: as Find; [errors.ErrUnsupported] for rows with optimizer state.
func (e *Export) Lookup(_ context.Context, rows *param.Rows) error {
	if rows.State != nil {
		return fmt.Errorf("native: an export has no optimizer state: %w", errors.ErrUnsupported)
	}
	if len(rows.Keys) != len(e.model.Tables) || len(rows.Values) != len(rows.Keys) {
		return fmt.Errorf("native: a lookup in %d tables of %d", len(rows.Keys), len(e.model.Tables))
	}
	for t, ids := range rows.Keys {
		if _, err := e.Find(t, ids, rows.Values[t], nil); err != nil {
			return err
		}
	}
	return nil
}

// Dense copies the dense weights unless the caller has them already, and returns their version, which is always 1.
func (e *Export) Dense(_ context.Context, have uint64, dst []float32) (version uint64, err error) {
	if len(dst) != len(e.model.Dense) {
		return 0, fmt.Errorf("native: room for %d dense weights of %d", len(dst), len(e.model.Dense))
	}
	if have != 1 {
		copy(dst, e.model.Dense)
	}
	return 1, nil
}
