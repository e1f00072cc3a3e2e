package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/position"
)

// Version is the format version that this package writes. It reads no other.
const Version = 1

// ManifestName is the file written last into a snapshot's folder: without it there is no snapshot.
const ManifestName = "manifest.json"

// maxManifestBytes bounds what is read of a manifest, worker state included.
const maxManifestBytes = 256 << 20

// Progress says how far a split was applied; see [position.Progress].
type Progress = position.Progress

// Table describes a table in a snapshot, enough to read it without the model.
type Table struct {
	Name     string    `json:"name"`
	Segments []Segment `json:"segments"`
	Rows     int64     `json:"rows"`
}

// Segment describes a segment of a table's rows.
type Segment struct {
	Name string `json:"name"`
	// Dim and StateDim are float32 of weights and of optimizer state.
	Dim      int `json:"dim"`
	StateDim int `json:"state_dim"`
}

// Dim is the number of weights of a row.
func (t Table) Dim() int {
	n := 0
	for _, s := range t.Segments {
		n += s.Dim
	}
	return n
}

// StateDim is the number of float32 of state of a row.
func (t Table) StateDim() int {
	n := 0
	for _, s := range t.Segments {
		n += s.StateDim
	}
	return n
}

// FileInfo describes one file of a snapshot.
type FileInfo struct {
	Name string `json:"name"`
	// Table is the number of the table whose rows the file holds, or -1 for the dense tensors.
	Table int `json:"table"`
	// Shard is the shard that wrote it, of those there were.
	Shard int `json:"shard"`
	// Rows is the number of rows, or of tensors.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
	// SHA256 is that of the whole file, hexadecimal.
	SHA256 string `json:"sha256"`
}

// Info is the manifest of a snapshot: everything but the parameters themselves.
type Info struct {
	Version int `json:"version"`
	// ID counts the snapshots of a folder from 1.
	ID      uint64    `json:"id"`
	Created time.Time `json:"created"`
	// Pinned snapshots are kept whatever their age. Note is the caller's remark.
	Pinned bool   `json:"pinned,omitempty"`
	Note   string `json:"note,omitempty"`
	// Label says what the snapshot is to the job. Of those with one label the newest is kept whatever its age.
	Label string `json:"label,omitempty"`
	// Shards is how many wrote it; any number can read it.
	Shards int `json:"shards"`
	// Layout is the text of the parameters' description and LayoutHash its hash.
	Layout     string `json:"layout"`
	LayoutHash string `json:"layout_hash"`
	// Meta is what the job said about itself.
	Meta map[string]string `json:"meta,omitempty"`
	// Recipe is what the job says its examples are made of: JSON that a program can read, and this package does not.
	Recipe json.RawMessage `json:"recipe,omitempty"`
	// Positions are the progress by source and split.
	Positions map[string]map[string]Progress `json:"positions"`
	// State holds what workers stored in the cut.
	State  map[string][]byte `json:"state,omitempty"`
	Tables []Table           `json:"tables"`
	// Tensors is the number of dense tensors.
	Tensors int        `json:"tensors"`
	Files   []FileInfo `json:"files"`
	// Digest names the contents, whatever the number of shards. See [Digest].
	Digest string `json:"digest"`
	// Checksum is the SHA-256 of the manifest with an empty checksum.
	Checksum string `json:"checksum"`

	// Path is the folder the snapshot lies in; it is not stored.
	Path string `json:"-"`
	// Took is how long writing took, when this process wrote it, and Stall the longest that a push waited for it.
	Took  time.Duration `json:"-"`
	Stall time.Duration `json:"-"`
}

// Rows is the number of rows of all tables.
func (i *Info) Rows() int64 {
	n := int64(0)
	for _, t := range i.Tables {
		n += t.Rows
	}
	return n
}

// Bytes is the size of all data files.
func (i *Info) Bytes() int64 {
	n := int64(0)
	for _, f := range i.Files {
		n += f.Bytes
	}
	return n
}

// TablesOf describes the tables of a layout, without rows.
func TablesOf(l *param.Layout) []Table {
	out := make([]Table, len(l.Tables))
	for i, t := range l.Tables {
		out[i].Name = t.Name
		for _, s := range t.Segments {
			out[i].Segments = append(out[i].Segments, Segment{s.Name, s.Dim, s.Optimizer.StateDim(s.Dim)})
		}
	}
	return out
}

// encode renders the manifest with its checksum, which it also sets.
func (i *Info) encode() ([]byte, error) {
	i.Checksum = ""
	sum, err := i.sum()
	if err != nil {
		return nil, err
	}
	i.Checksum = sum
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // people read it too
	if err := enc.Encode(i); err != nil {
		return nil, fmt.Errorf("snapshot: manifest: %w", err)
	}
	return b.Bytes(), nil
}

func (i Info) sum() (string, error) {
	i.Checksum = ""
	b, err := json.Marshal(&i)
	if err != nil {
		return "", fmt.Errorf("snapshot: manifest: %w", err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// decodeManifest reads and checks a manifest. Errors: [ErrCorrupt], [ErrVersion].
func decodeManifest(b []byte) (*Info, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", ManifestName, ErrCorrupt, err)
	}
	if head.Version != Version {
		return nil, fmt.Errorf("%s: version %d, this program reads %d: %w", ManifestName, head.Version, Version, ErrVersion)
	}
	info := &Info{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(info); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", ManifestName, ErrCorrupt, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: text after the manifest: %w", ManifestName, ErrCorrupt)
	}
	sum, err := info.sum()
	if err != nil {
		return nil, err
	}
	if sum != info.Checksum {
		return nil, fmt.Errorf("%s: checksum mismatch (want %s, got %s): %w", ManifestName, info.Checksum, sum, ErrCorrupt)
	}
	if err := info.check(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", ManifestName, ErrCorrupt, err)
	}
	return info, nil
}

// check refuses what no writer writes, so that readers may trust dimensions and names.
func (i *Info) check() error {
	const maxDim = 1 << 24
	rows := make([]int64, len(i.Tables))
	for _, t := range i.Tables {
		for _, s := range t.Segments {
			if s.Dim < 1 || s.Dim > maxDim || s.StateDim < 0 || s.StateDim > 4*maxDim {
				return fmt.Errorf("table %q segment %q has dimensions %d and %d", t.Name, s.Name, s.Dim, s.StateDim)
			}
		}
		if len(t.Segments) == 0 || len(t.Segments) > 1024 {
			return fmt.Errorf("table %q has %d segments", t.Name, len(t.Segments))
		}
	}
	tensors := int64(0)
	for _, f := range i.Files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." || f.Name == ManifestName {
			return fmt.Errorf("file name %q", f.Name)
		}
		if f.Rows < 0 || f.Bytes < 0 {
			return fmt.Errorf("file %q has %d rows in %d bytes", f.Name, f.Rows, f.Bytes)
		}
		switch {
		case f.Table == -1:
			tensors += f.Rows
		case f.Table >= 0 && f.Table < len(rows):
			rows[f.Table] += f.Rows
		default:
			return fmt.Errorf("file %q is of table %d of %d", f.Name, f.Table, len(rows))
		}
	}
	for t, n := range rows {
		if i.Tables[t].Rows != n {
			return fmt.Errorf("table %q has %d rows, its files %d", i.Tables[t].Name, i.Tables[t].Rows, n)
		}
	}
	if tensors != int64(i.Tensors) {
		return fmt.Errorf("%d dense tensors, its files have %d", i.Tensors, tensors)
	}
	return nil
}
