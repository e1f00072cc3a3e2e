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
const Version = 2

// ManifestName is the file written last into a snapshot's folder: without it there is no snapshot.
const ManifestName = "manifest.json"

// maxManifestBytes bounds what is read of a manifest, worker state included.
const maxManifestBytes = 256 << 20

// Progress describes how far a split was applied; see [position.Progress].
type Progress = position.Progress

// Table is a table in a snapshot.
type Table struct {
	param.TableShape
	// Rows is how many there are, those that lie in the bases of an incremental snapshot included.
	Rows int64 `json:"rows"`
}

// Base is the snapshot that an incremental one adds to. A snapshot keeps number and time when [Compact] makes it a whole one.
type Base struct {
	ID      uint64    `json:"id"`
	Created time.Time `json:"created"`
}

// Kind describes what a file of a snapshot holds.
type Kind string

// The kinds of files.
const (
	// KindRows files hold fids, times, counts and weights of rows, KindState ones the optimizers' state of the same rows.
	KindRows  Kind = "rows"
	KindState Kind = "state"
	// KindRemoved files hold the fids of rows that the base has and the incremental snapshot has no more.
	KindRemoved Kind = "removed"
	// KindWaiting files hold the fids of a table that are counted and have no row yet, with their times and counts.
	KindWaiting Kind = "waiting"
	// KindFilter files hold the cells of the hash filter that counts such fids, in the same columns; package table has their form.
	KindFilter Kind = "filter"
	// KindDense files hold the weights of dense tensors, KindDenseState ones the optimizers' state.
	KindDense      Kind = "dense"
	KindDenseState Kind = "dense_state"
)

// Counted is the kind of files that fids without a row are in, by how they are admitted.
func Counted(a param.Admission) Kind {
	if a.Filters() {
		return KindFilter
	}
	return KindWaiting
}

// countedKinds are what Counted may give.
var countedKinds = []Kind{KindWaiting, KindFilter}

// Model is a model's graph, in a form that package model reads; this one does not look into it.
type Model struct {
	Name    string          `json:"name"`
	Version int             `json:"version"`
	Graph   json.RawMessage `json:"graph"`
}

// FileInfo describes one file of a snapshot.
type FileInfo struct {
	// Name is where the file lies, below the snapshot's folder.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Table is the number of the table whose rows the file holds, or -1 for the dense tensors.
	Table int `json:"table"`
	// Shard is the shard that wrote it, of those there were.
	Shard int `json:"shard"`
	// Rows is the number of rows, of tensors or of fids in the file.
	Rows int64 `json:"rows"`
	// Total is, for the rows of an incremental snapshot, how many the shard's part of the table has with those of the bases.
	Total int64 `json:"total,omitempty"`
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
	// Base makes the snapshot an incremental one: its files have the rows that have changed since the base, which lies in the same
	// folder, and the fids of those that are gone. Dense tensors are whole, and so is what counts fids without a row. nil: it is whole.
	Base *Base `json:"base,omitempty"`
	// Pinned snapshots are kept whatever their age. Note is the caller's remark.
	Pinned bool   `json:"pinned,omitempty"`
	Note   string `json:"note,omitempty"`
	// Label describes what the snapshot is to the job. Of those with one label the newest is kept whatever its age.
	Label string `json:"label,omitempty"`
	// Shards is how many wrote it; any number can read it.
	Shards int `json:"shards"`
	// Tables and Dense are the shape of the parameters, and how many rows there are: what must fit.
	Tables []Table             `json:"tables"`
	Dense  []param.TensorShape `json:"dense"`
	// Rules are what the parameters were trained by until now: what may change.
	Rules param.Rules `json:"rules"`
	// Model is the graph that the parameters belong to; nil when the trainer gave none.
	Model *Model `json:"model,omitempty"`
	// Meta is what the job adds about itself.
	Meta map[string]string `json:"meta,omitempty"`
	// Recipe is what the job says its examples are made of: JSON that a program can read, and this package does not.
	Recipe json.RawMessage `json:"recipe,omitempty"`
	// Positions are the progress by source and split.
	Positions map[string]map[string]Progress `json:"positions"`
	// State holds what workers stored in the cut.
	State map[string][]byte `json:"state,omitempty"`
	Files []FileInfo        `json:"files"`
	// Digest names the contents, whatever the number of shards, of a whole snapshot; see [Digest]. An incremental one has none: it
	// would take reading all rows.
	Digest string `json:"digest"`
	// Checksum is the SHA-256 of the manifest with an empty checksum.
	Checksum string `json:"checksum"`

	// Path is the folder the snapshot lies in; it is not stored.
	Path string `json:"-"`
	// Manifest is how many bytes the manifest itself has, which is more than all rows where there are few of them and much worker state.
	Manifest int64 `json:"-"`
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

// Written is how many rows its own files have: made and changed ones, and ids of removed ones.
func (i *Info) Written() (n int64) {
	for _, f := range i.Files {
		if f.Kind == KindRows || f.Kind == KindRemoved {
			n += f.Rows
		}
	}
	return n
}

// TotalRows is how many rows of a table a file of rows stands for, those of the bases included.
func (i *Info) TotalRows(f FileInfo) int64 {
	if i.Base == nil {
		return f.Rows
	}
	return f.Total
}

// Bytes is the size of all files, the manifest too, without those of bases.
func (i *Info) Bytes() int64 {
	n := i.Manifest
	for _, f := range i.Files {
		n += f.Bytes
	}
	return n
}

// Shape is what the snapshot's parameters look like.
func (i *Info) Shape() param.Shape {
	s := param.Shape{Dense: i.Dense}
	for _, t := range i.Tables {
		s.Tables = append(s.Tables, t.TableShape)
	}
	return s
}

// tablesOf are the tables of a layout, without rows.
func tablesOf(l *param.Layout) []Table {
	var out []Table
	for _, t := range l.Shape().Tables {
		out = append(out, Table{TableShape: t})
	}
	return out
}

// encode renders the manifest with its checksum; it sets that, and Manifest.
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
	i.Manifest = int64(b.Len())
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
	if head.Version >= 0 && head.Version < Version {
		return nil, fmt.Errorf("%s: version %d, which an earlier release wrote and this one does not read (it reads %d): train from the source again in another dir, or use that release: %w",
			ManifestName, head.Version, Version, ErrVersion)
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
	info.Manifest = int64(len(b))
	return info, nil
}

// maxFiles bounds the files of a manifest: seven a table and shard.
const maxFiles = 1 << 20

// check refuses what no writer writes, so that readers may trust dimensions and names.
func (i *Info) check() error {
	if err := i.Shape().Validate(); err != nil {
		return err
	}
	if i.ID == 0 || i.Shards < 1 || len(i.Files) > maxFiles {
		return fmt.Errorf("snapshot %d of %d shards with %d files", i.ID, i.Shards, len(i.Files))
	}
	if b := i.Base; b != nil && (b.ID == 0 || b.ID >= i.ID) {
		return fmt.Errorf("snapshot %d adds to snapshot %d", i.ID, b.ID)
	}
	parameters := len(i.Dense)
	for _, t := range i.Tables {
		parameters += len(t.Segments)
	}
	if len(i.Rules.Parameters) != parameters {
		return fmt.Errorf("rules of %d parameters, there are %d", len(i.Rules.Parameters), parameters)
	}
	rows, names := make([]int64, len(i.Tables)), map[string]bool{}
	var tensors, states int64
	state, total := make([]int64, len(i.Tables)), make([]int64, len(i.Tables))
	for _, f := range i.Files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." || f.Name == ManifestName || names[f.Name] {
			return fmt.Errorf("file name %q", f.Name)
		}
		names[f.Name] = true
		if f.Total != 0 && (i.Base == nil || f.Kind != KindRows) || f.Total < 0 {
			return fmt.Errorf("file %q stands for %d rows", f.Name, f.Total)
		}
		if f.Rows < 0 || f.Bytes < 0 || f.Shard < 0 || f.Shard >= i.Shards {
			return fmt.Errorf("file %q of shard %d of %d has %d rows in %d bytes", f.Name, f.Shard, i.Shards, f.Rows, f.Bytes)
		}
		inTable := f.Table >= 0 && f.Table < len(rows)
		switch {
		case f.Table == -1 && f.Kind == KindDense:
			tensors += f.Rows
		case f.Table == -1 && f.Kind == KindDenseState:
			states += f.Rows
		case inTable && f.Kind == KindRows:
			rows[f.Table] += f.Rows
			total[f.Table] += i.TotalRows(f)
		case inTable && f.Kind == KindState:
			state[f.Table] += f.Rows
		case inTable && f.Kind == KindRemoved && i.Base != nil:
		case inTable && (f.Kind == KindWaiting || f.Kind == KindFilter):
		default:
			return fmt.Errorf("file %q is %q of table %d of %d", f.Name, f.Kind, f.Table, len(rows))
		}
	}
	for t, n := range rows {
		if i.Tables[t].Rows != total[t] {
			return fmt.Errorf("table %q has %d rows, its files %d", i.Tables[t].Name, i.Tables[t].Rows, total[t])
		}
		if i.Tables[t].StateDim() > 0 && state[t] != n || i.Tables[t].StateDim() == 0 && state[t] != 0 {
			return fmt.Errorf("table %q has %d rows, and %d have optimizer state", i.Tables[t].Name, n, state[t])
		}
	}
	if tensors != int64(len(i.Dense)) || states != tensors {
		return fmt.Errorf("%d dense tensors, its files have %d and the state of %d", len(i.Dense), tensors, states)
	}
	return nil
}

// state reports whether a file holds what only training needs.
func (k Kind) state() bool {
	return k == KindState || k == KindDenseState || k == KindWaiting || k == KindFilter
}

// whole reports whether every snapshot has all of what such a file holds, incremental ones included.
func (k Kind) whole() bool { return k != KindRows && k != KindState && k != KindRemoved }
