package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/ps/table"
)

// Snapshot is an open snapshot whose checksums are right. Its methods may overlap.
type Snapshot struct {
	info  *Info
	files []mapped
}

type mapped struct {
	data  []byte
	unmap func() error
}

// ReadInfo returns the manifest of a snapshot without looking at its data. Errors: [ErrCorrupt], [ErrVersion].
func ReadInfo(path string) (*Info, error) { return readInfo(OS{}, path) }

// ReadInfoFS is [ReadInfo] on another file system.
func ReadInfoFS(fsys FS, path string) (*Info, error) { return readInfo(fsys, path) }

func readInfo(fsys FS, path string) (*Info, error) {
	b, err := fsys.ReadFile(filepath.Join(path, ManifestName), maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s: %w: %w", path, ErrCorrupt, err)
	}
	info, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s: %w", path, err)
	}
	info.Path = path
	return info, nil
}

// Open opens a snapshot and verifies every file against the manifest before anything of it is used. Errors:
// [ErrCorrupt], [ErrVersion]; both name the file.
func Open(path string) (*Snapshot, error) { return OpenFS(OS{}, path) }

// OpenFS is [Open] on another file system.
func OpenFS(fsys FS, path string) (*Snapshot, error) { return open(fsys, path, -1) }

// OpenShard is [OpenFS] for one shard of the number that wrote the snapshot: only its files are verified and read. Of a
// snapshot that another number of shards wrote, every file is.
func OpenShard(fsys FS, path string, shard, shards int) (*Snapshot, error) {
	info, err := readInfo(fsys, path)
	if err != nil {
		return nil, err
	}
	if info.Shards != shards {
		shard = -1
	}
	return open(fsys, path, shard)
}

// open opens the files of one shard, or all for -1.
func open(fsys FS, path string, shard int) (*Snapshot, error) {
	info, err := readInfo(fsys, path)
	if err != nil {
		return nil, err
	}
	if shard >= 0 {
		info.Files = slices.DeleteFunc(info.Files, func(f FileInfo) bool { return f.Shard != shard })
	}
	s := &Snapshot{info: info}
	for _, f := range info.Files {
		data, unmap, err := fsys.Map(filepath.Join(path, f.Name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("snapshot: %s: %s: %w: %w", path, f.Name, ErrCorrupt, err), s.Close())
		}
		s.files = append(s.files, mapped{data, unmap})
		if int64(len(data)) != f.Bytes {
			err := fmt.Errorf("snapshot: %s: %s has %d bytes of %d: %w", path, f.Name, len(data), f.Bytes, ErrCorrupt)
			return nil, errors.Join(err, s.Close())
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.SHA256 {
			err := fmt.Errorf("snapshot: %s: %s: checksum mismatch (want %s, got %x): %w", path, f.Name, f.SHA256, sum, ErrCorrupt)
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Info returns the manifest. It belongs to the snapshot.
func (s *Snapshot) Info() *Info { return s.info }

// Close ends the use of the files and of everything that points into them.
func (s *Snapshot) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.unmap())
	}
	s.files = nil
	return errors.Join(errs...)
}

// Rows calls each with the rows of a table, at most 64Ki at a time; they are valid during the call. The rows of one file
// come in the order of [table.Hash]. Errors: [ErrCorrupt], and what each returns.
func (s *Snapshot) Rows(tbl int, each func(*table.Rows) error) error {
	for i, f := range s.info.Files {
		if f.Table != tbl {
			continue
		}
		n, err := readRows(s.files[i].data, s.info.Tables[tbl], each)
		if err == nil && n != f.Rows {
			err = fmt.Errorf("%d rows of %d: %w", n, f.Rows, ErrCorrupt)
		}
		if err != nil {
			return fmt.Errorf("snapshot: %s: %s: %w", s.info.Path, f.Name, err)
		}
	}
	return nil
}

// Tensors returns the dense tensors. Errors: [ErrCorrupt].
func (s *Snapshot) Tensors() ([]Tensor, error) {
	var out []Tensor
	for i, f := range s.info.Files {
		if f.Table != -1 {
			continue
		}
		t, err := readTensors(s.files[i].data)
		if err == nil && int64(len(t)) != f.Rows {
			err = fmt.Errorf("%d tensors of %d: %w", len(t), f.Rows, ErrCorrupt)
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot: %s: %s: %w", s.info.Path, f.Name, err)
		}
		out = append(out, t...)
	}
	return out, nil
}

// Digest computes the digest of the contents anew; a whole snapshot gives [Info].Digest. Errors: [ErrCorrupt].
func (s *Snapshot) Digest() (string, error) {
	var d Digest
	for i, t := range s.info.Tables {
		err := s.Rows(i, func(r *table.Rows) error {
			d.Rows(t.Name, t.Dim(), t.StateDim(), r)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	tensors, err := s.Tensors()
	if err != nil {
		return "", err
	}
	for _, t := range tensors {
		d.Dense(t)
	}
	for source, splits := range s.info.Positions {
		for split, p := range splits {
			d.Split(source, split, p)
		}
	}
	for key, value := range s.info.State {
		d.State(key, value)
	}
	return d.String(), nil
}

// readRows decodes a file of rows that need not be sound.
func readRows(data []byte, t Table, each func(*table.Rows) error) (n int64, err error) {
	cols := newColumns(t)
	var rows table.Rows
	err = readFile(data, func(r *ipc.FileReader) error {
		if !r.Schema().Equal(cols.schema) {
			return fmt.Errorf("schema %v instead of %v: %w", r.Schema(), cols.schema, ErrCorrupt)
		}
		for i := range r.NumRecords() {
			var rec arrow.RecordBatch
			err := guard(func() (err error) {
				if rec, err = r.RecordBatchAt(i); err != nil {
					return err
				}
				return cols.rows(rec, &rows)
			})
			if err == nil {
				n += rec.NumRows()
				err = each(&rows)
			}
			if rec != nil {
				rec.Release()
			}
			if err != nil {
				return fmt.Errorf("record batch %d: %w", i, err)
			}
		}
		return nil
	})
	return n, err
}

func readTensors(data []byte) (out []Tensor, err error) {
	err = readFile(data, func(r *ipc.FileReader) error {
		if !r.Schema().Equal(denseSchema()) {
			return fmt.Errorf("schema %v instead of %v: %w", r.Schema(), denseSchema(), ErrCorrupt)
		}
		return guard(func() error {
			for i := range r.NumRecords() {
				rec, err := r.RecordBatchAt(i)
				if err != nil {
					return err
				}
				names := rec.Column(0).(*array.String)
				for row := range int(rec.NumRows()) {
					t := Tensor{Name: string([]byte(names.Value(row)))}
					beg, end := rec.Column(1).(*array.List).ValueOffsets(row)
					t.Shape = append(t.Shape, rec.Column(1).(*array.List).ListValues().(*array.Int64).Int64Values()[beg:end]...)
					t.Weights = floats(rec.Column(2), row)
					t.State = floats(rec.Column(3), row)
					out = append(out, t)
				}
				rec.Release()
			}
			return nil
		})
	})
	return out, err
}

func floats(col interface{ Len() int }, row int) []float32 {
	list := col.(*array.List)
	beg, end := list.ValueOffsets(row)
	return append([]float32(nil), list.ListValues().(*array.Float32).Float32Values()[beg:end]...)
}

// readFile opens an Arrow file and turns what the decoder panics with on unsound input into [ErrCorrupt]. Its allocator
// has a limit, because sound files are read in place: only decompression, which no writer asks for, would allocate.
func readFile(data []byte, use func(*ipc.FileReader) error) error {
	var r *ipc.FileReader
	err := guard(func() (err error) {
		r, err = ipc.NewMappedFileReader(data, ipc.WithAllocator(limited{memory.DefaultAllocator}))
		return err
	})
	if err != nil {
		return err
	}
	err = use(r)
	return errors.Join(err, guard(r.Close))
}

func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	if err := f(); err != nil {
		if errors.Is(err, ErrCorrupt) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// limited refuses large allocations by a panic that guard catches.
type limited struct{ memory.Allocator }

const maxAllocBytes = 1 << 20

func (l limited) Allocate(size int) []byte {
	if size > maxAllocBytes {
		panic(fmt.Sprintf("%d bytes to decode", size))
	}
	return l.Allocator.Allocate(size)
}

func (l limited) Reallocate(size int, b []byte) []byte {
	if size > maxAllocBytes {
		panic(fmt.Sprintf("%d bytes to decode", size))
	}
	return l.Allocator.Reallocate(size, b)
}
