package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/ps/table"
)

// Snapshot is an open snapshot whose checksums are right. Its methods may overlap.
type Snapshot struct {
	info  *Info
	files []Source
}

// ReadInfo returns the manifest of a snapshot without looking at its data. Errors: [ErrCorrupt], [ErrVersion].
func ReadInfo(path string) (*Info, error) { return readInfo(OS{}, path) }

// ReadInfoFS is [ReadInfo] on another file system.
func ReadInfoFS(fsys FS, path string) (*Info, error) { return readInfo(fsys, path) }

func readInfo(fsys FS, path string) (*Info, error) {
	b, err := fsys.ReadFile(filepath.Join(path, ManifestName), maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %s: %w", path, unreadable(err))
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
		if err := s.add(fsys, f); err != nil {
			return nil, errors.Join(fmt.Errorf("snapshot: %s: %s: %w", path, f.Name, err), s.Close())
		}
	}
	return s, nil
}

// add opens a file and verifies it.
func (s *Snapshot) add(fsys FS, f FileInfo) error {
	src, err := fsys.Open(filepath.Join(s.info.Path, f.Name))
	if err != nil {
		return unreadable(err)
	}
	s.files = append(s.files, src)
	if src.Size() != f.Bytes {
		return fmt.Errorf("%d bytes of %d: %w", src.Size(), f.Bytes, ErrCorrupt)
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, struct{ io.Reader }{io.NewSectionReader(src, 0, f.Bytes)}, make([]byte, 1<<20))
	switch sum := h.Sum(nil); {
	case err != nil:
		return unreadable(err)
	case n != f.Bytes:
		return fmt.Errorf("%d bytes of %d can be read: %w", n, f.Bytes, ErrCorrupt)
	case hex.EncodeToString(sum) != f.SHA256:
		return fmt.Errorf("checksum mismatch (want %s, got %x): %w", f.SHA256, sum, ErrCorrupt)
	}
	return nil
}

// unreadable is an error of reading a file as callers know it.
func unreadable(err error) error {
	if !Damage(err) || errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// Info returns the manifest. It belongs to the snapshot.
func (s *Snapshot) Info() *Info { return s.info }

// Close closes the files.
func (s *Snapshot) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
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
		n, err := readRows(s.files[i], s.info.Tables[tbl], each)
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
		t, err := readTensors(s.files[i])
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
