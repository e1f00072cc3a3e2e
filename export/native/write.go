package native

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/sinks/filesink"
)

const (
	// ManifestName is the file that is written last.
	ManifestName = "manifest.json"
	denseName    = "dense.f32"
	formatName   = "monolith-native"
	// Version is that of the format that this package writes. It reads 1 too, whose manifest does not say which hashes files have.
	Version = 2
	oldest  = 1
	// maxManifest bounds what is read of a manifest.
	maxManifest = 256 << 20
)

// manifest describes an export.
type manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Model is an [export.Model] as JSON.
	Model json.RawMessage `json:"model"`
	Files []file          `json:"files"`
	// Checksum is the CRC-32C of the manifest as compact JSON with a checksum of 0.
	Checksum uint32 `json:"crc32c"`
}

// file is a file of an export.
type file struct {
	// Name is where it lies below the export's folder, with slashes.
	Name string `json:"name"`
	// Table is the number of the table whose rows it holds; -1: the dense weights.
	Table int   `json:"table"`
	Rows  int64 `json:"rows,omitempty"`
	Bytes int64 `json:"bytes"`
	// CRC32C is that of the dense weights, or of a slab before its footer.
	CRC32C uint32 `json:"crc32c"`
	// Hashes are those of a slab's first and last row; nil: the manifest is of version 1, or there are no rows.
	Hashes *hashes `json:"hashes,omitempty"`
}

type hashes struct {
	First uint64 `json:"first,string"`
	Last  uint64 `json:"last,string"`
}

// Part is one of several equal ranges of hashes. Its rows lie next to each other in the files.
type Part struct {
	// Index is its number, from 0, and Of how many there are.
	Index, Of int
}

// String is the part as the command line has it: 0/2.
func (p Part) String() string { return fmt.Sprintf("%d/%d", p.Index, p.Of) }

// needs reports whether a file may have rows of the part; nil: all are wanted.
func (p *Part) needs(f file) bool {
	return p == nil || f.Hashes == nil || partOf(f.Hashes.First, p.Of) <= p.Index && p.Index <= partOf(f.Hashes.Last, p.Of)
}

func partOf(hash uint64, n int) int {
	part, _ := bits.Mul64(hash, uint64(n))
	return int(part)
}

func (m manifest) sum() (uint32, error) {
	m.Checksum = 0
	b, err := json.Marshal(m)
	return crc32.Checksum(b, castagnoli), err
}

// Rows describes the sink of the rows of a table, which batches of a snapshot's rows go to: each with ids, column fid, in the order of
// [table.Hash], and dim weights, column weights, of all segments side by side. It is a [filesink.Sink]: a killed writer is continued by another. rowsPerFile 0: as usual.
// Errors: those of [filesink.New]; [errors.ErrUnsupported] where numbers are big endian.
func Rows(dir, table string, dim int, rowsPerFile int64, output string) (*filesink.Sink, error) {
	if err := littleEndian(); err != nil {
		return nil, err
	}
	o := filesink.Options{Dir: dir, RowsPerFile: rowsPerFile, FileEvery: 24 * time.Hour, Output: output}
	return filesink.New(slabs{o, table, dim}, o)
}

// Complete makes an export of a folder with the rows of all tables: it writes the dense weights and, at last, the manifest. It reads the end of each
// slab alone. Errors: [ErrCorrupt] for rows that are not all that the model has, each once, in the order of their hashes; those of the file system.
func Complete(ctx context.Context, in fsx.FS, dir string, m *export.Model) error {
	out := manifest{Format: formatName, Version: Version}
	var err error
	if out.Model, err = json.Marshal(m); err != nil {
		return fmt.Errorf("native: %w", err)
	}
	for i, t := range m.Tables {
		files, err := found(ctx, in, dir, i, t.Name)
		if err != nil {
			return fmt.Errorf("native: %s: %w", dir, err)
		}
		if err := checkTable(files, t, m.Graph.Layout().Tables[i].Dim()); err != nil {
			return fmt.Errorf("native: %s: %w: %w", dir, err, ErrCorrupt)
		}
		for _, f := range files {
			out.Files = append(out.Files, f.file)
		}
	}
	dense := make([]byte, 0, 4*len(m.Dense))
	for _, w := range m.Dense {
		dense = binary.LittleEndian.AppendUint32(dense, math.Float32bits(w))
	}
	out.Files = append(out.Files, file{Name: denseName, Table: -1, Bytes: int64(len(dense)), CRC32C: crc32.Checksum(dense, castagnoli)})
	if err := fsx.WriteFile(ctx, in, filepath.Join(dir, denseName), dense); err != nil {
		return fmt.Errorf("native: %w", err)
	}
	if out.Checksum, err = out.sum(); err != nil {
		return fmt.Errorf("native: %w", err)
	}
	text, err := json.MarshalIndent(out, "", " ")
	if err == nil {
		err = fsx.WriteFile(ctx, in, filepath.Join(dir, ManifestName), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("native: %w", err)
	}
	return nil
}

// described is a slab with its footer.
type described struct {
	file
	*footer
}

// found are the slabs of a table in the order of their hashes.
func found(ctx context.Context, in fsx.FS, dir string, tbl int, name string) ([]described, error) {
	folder := export.Folder(name)
	infos, err := in.List(ctx, filepath.Join(dir, folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []described
	for _, i := range infos {
		if strings.HasPrefix(i.Name, ".") || !strings.HasSuffix(i.Name, extension) {
			continue
		}
		d := described{file: file{Name: folder + "/" + i.Name, Table: tbl, Bytes: i.Size}}
		f, err := in.Open(ctx, filepath.Join(dir, folder, i.Name))
		if err != nil {
			return nil, err
		}
		d.footer, err = readFooter(f, i.Size)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		d.file.Rows, d.file.CRC32C, d.Hashes = d.footer.Rows, d.footer.CRC32C, &hashes{d.First, d.Last}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b described) int { return cmp.Compare(a.First, b.First) })
	return out, nil
}

// checkTable refuses slabs, in their order, that are not the rows of a table. Of those that are not needed there is no footer.
func checkTable(slabs []described, t export.Table, dim int) error {
	rows, last := int64(0), -1 // number of the last one with a footer
	for i, f := range slabs {
		rows += f.file.Rows
		if f.footer == nil {
			continue
		}
		switch {
		case f.footer.Table != t.Name || f.Dim != int64(dim):
			return fmt.Errorf("%s has %d weights a row of table %q, not %d of %q", f.Name, f.Dim, f.footer.Table, dim, t.Name)
		case f.file.Rows != f.footer.Rows || f.file.CRC32C != f.footer.CRC32C || f.Hashes != nil && *f.Hashes != hashes{f.First, f.Last}:
			return fmt.Errorf("%s has other rows than its manifest says", f.Name)
		case last >= 0 && f.First <= slabs[last].Last:
			return fmt.Errorf("%s has hashes that %s has too", f.Name, slabs[last].Name)
		}
		last = i
	}
	if rows != t.Rows {
		return fmt.Errorf("table %q has %d rows in its files, and should have %d", t.Name, rows, t.Rows)
	}
	return nil
}

// decodeManifest reads a manifest. Errors: [ErrCorrupt], [ErrVersion].
func decodeManifest(b []byte) (*manifest, *export.Model, error) {
	var v struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.Format != formatName {
		return nil, nil, fmt.Errorf("format %q: %w", v.Format, errors.Join(err, ErrCorrupt))
	}
	if v.Version < oldest || v.Version > Version {
		return nil, nil, fmt.Errorf("version %d, and this program reads %d to %d: %w", v.Version, oldest, Version, ErrVersion)
	}
	m, model := &manifest{}, &export.Model{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(m)
	if err == nil {
		var sum uint32
		if sum, err = m.sum(); err == nil && sum != m.Checksum {
			err = fmt.Errorf("checksum %08x, not %08x", sum, m.Checksum)
		}
	}
	if err == nil {
		err = json.Unmarshal(m.Model, model)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	dense := 0
	for _, f := range m.Files {
		if f.Table < 0 {
			dense++
		}
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Table < -1 || f.Table >= len(model.Tables) || f.Bytes < 0 {
			return nil, nil, fmt.Errorf("file %.80q of %d bytes, table %d: %w", f.Name, f.Bytes, f.Table, ErrCorrupt)
		}
	}
	if dense != 1 {
		return nil, nil, fmt.Errorf("%d files of dense weights: %w", dense, ErrCorrupt)
	}
	return m, model, nil
}
