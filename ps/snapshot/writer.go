package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/model/param"
)

// Options describe a snapshot to be written.
type Options struct {
	// FS is where it goes; nil is [OS].
	FS FS
	// Dir holds the snapshots of one job.
	Dir string
	// ID is above that of every snapshot in Dir.
	ID     uint64
	Layout *param.Layout
	// Shards is how many write.
	Shards int
	Pinned bool
	Note   string
	Label  string
	Meta   map[string]string
	Recipe json.RawMessage
	// Created is the time of the cut.
	Created   time.Time
	Positions map[string]map[string]Progress
	State     map[string][]byte
	// Need estimates the bytes to be written, for the error of a full disk.
	Need int64
}

// Writer writes one snapshot into a folder with a temporary name: every shard writes its [Part] into [Writer.Dir],
// wherever it runs, and Commit the manifest. It is not for concurrent use. After an error only [Writer.Abort] may be called.
type Writer struct {
	fs         FS
	tmp, final string
	info       *Info
	digest     Digest
	need       int64
	wrote      int64
}

// Create begins a snapshot. Errors: [ErrNoSpace].
func Create(o Options) (*Writer, error) {
	w := &Writer{
		fs: o.FS, need: o.Need,
		final: filepath.Join(o.Dir, dirName(o.ID)),
		info: &Info{
			Version: Version, ID: o.ID, Created: o.Created.UTC(), Pinned: o.Pinned, Note: o.Note, Label: o.Label, Shards: o.Shards,
			Layout: o.Layout.String(), LayoutHash: o.Layout.Hash(), Meta: o.Meta, Recipe: o.Recipe, Positions: o.Positions, State: o.State,
			Tables: TablesOf(o.Layout),
		},
	}
	if w.fs == nil {
		w.fs = OS{}
	}
	w.tmp = w.final + tmpSuffix
	if err := errors.Join(w.fs.RemoveAll(w.tmp), w.fs.MkdirAll(w.tmp)); err != nil {
		return nil, w.fail(err)
	}
	// The folder of all snapshots may be new; without its name theirs would be worth nothing.
	if err := w.fs.SyncDir(filepath.Dir(o.Dir)); err != nil {
		return nil, w.fail(err)
	}
	return w, nil
}

// Dir is the folder that shards write their parts to until the snapshot gets its name.
func (w *Writer) Dir() string { return w.tmp }

// Add takes what one shard has written into the snapshot.
func (w *Writer) Add(p *Part) {
	for _, f := range p.Files {
		w.info.Files = append(w.info.Files, f)
		if f.Table < 0 {
			w.info.Tensors += int(f.Rows)
		} else {
			w.info.Tables[f.Table].Rows += f.Rows
		}
		w.wrote += f.Bytes
	}
	w.digest.Add(&p.Digest)
}

// Commit writes the manifest and gives the snapshot its name; only then it exists (invariant 4). When the error is nil
// the snapshot is durable.
func (w *Writer) Commit() (*Info, error) {
	for source, splits := range w.info.Positions {
		for split, p := range splits {
			w.digest.Split(source, split, p)
		}
	}
	for key, value := range w.info.State {
		w.digest.State(key, value)
	}
	w.info.Digest = w.digest.String()
	b, err := w.info.encode()
	if err != nil {
		return nil, err
	}
	m, err := w.fs.Create(filepath.Join(w.tmp, ManifestName))
	if err != nil {
		return nil, w.fail(err)
	}
	_, err = m.Write(b)
	if err == nil {
		err = m.Sync()
	}
	if err = errors.Join(err, m.Close()); err != nil {
		return nil, w.fail(err)
	}
	if err := w.fs.SyncDir(w.tmp); err != nil {
		return nil, w.fail(err)
	}
	if err := w.fs.Rename(w.tmp, w.final); err != nil {
		return nil, w.fail(err)
	}
	w.info.Path = w.final
	if err := w.fs.SyncDir(filepath.Dir(w.final)); err != nil {
		return nil, w.fail(err)
	}
	return w.info, nil
}

// Abort removes what was written.
func (w *Writer) Abort() error { return w.fs.RemoveAll(w.tmp) }

// fail says what failed, and for a full disk what can be done; need and wrote are bytes.
func fail(path string, need, wrote int64, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("snapshot: %s: %w: about %d bytes are needed, the disk was full after %d; the snapshots before it are whole; free space, keep fewer snapshots or name another folder: %w",
			path, ErrNoSpace, max(need, wrote), wrote, err)
	}
	return fmt.Errorf("snapshot: writing %s: %w", path, err)
}

func (w *Writer) fail(err error) error { return fail(w.final, w.need, w.wrote, err) }
