package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
)

// Options describe a snapshot to be written.
type Options struct {
	// FS is where it goes; nil is [fsx.Local].
	FS fsx.FS
	// Dir holds the snapshots of one job.
	Dir string
	// ID is above that of every snapshot in Dir.
	ID     uint64
	Layout *param.Layout
	// Base, if not nil, is the snapshot of Dir that the new one adds to, of as many shards and of the same shape: every shard writes what
	// has changed since then ([PartWriter.Changed]).
	Base *Info
	// Shards is how many write.
	Shards int
	Pinned bool
	Note   string
	Label  string
	Meta   map[string]string
	Recipe json.RawMessage
	Model  *Model
	// Created is the time of the cut.
	Created   time.Time
	Positions map[string]map[string]Progress
	State     map[string][]byte
	// Need estimates the bytes to be written, for the error of a full disk.
	Need int64
}

// Writer writes one snapshot: every shard writes its [Part] into [Writer.Dir], wherever it runs, and Commit the manifest. It
// is not for concurrent use. After an error only [Writer.Abort] may be called.
type Writer struct {
	fs     fsx.FS
	path   string
	info   *Info
	digest Digest
	need   int64
	wrote  int64
}

// Create begins a snapshot. Errors: [ErrNoSpace].
func Create(o Options) (*Writer, error) {
	w := &Writer{
		fs: disk(o.FS), need: o.Need, path: Path(o.Dir, o.ID),
		info: &Info{
			Version: Version, ID: o.ID, Created: o.Created.UTC(), Pinned: o.Pinned, Note: o.Note, Label: o.Label, Shards: o.Shards,
			Tables: tablesOf(o.Layout), Dense: o.Layout.Shape().Dense, Rules: o.Layout.Rules(), Model: o.Model,
			Meta: o.Meta, Recipe: o.Recipe, Positions: o.Positions, State: o.State,
		},
	}
	if o.Base != nil {
		w.info.Base = &Base{ID: o.Base.ID, Created: o.Base.Created}
	}
	if err := remove(w.fs, w.path); err != nil {
		return nil, w.fail(err)
	}
	// Shards look for this to see that they see the same place.
	if err := put(w.fs, filepath.Join(w.path, begunName), nil); err != nil {
		return nil, errors.Join(w.fail(err), w.Abort())
	}
	return w, nil
}

// Begun reports whether a place is seen where a snapshot was begun.
func Begun(f fsx.FS, dir string) (bool, error) {
	found, err := names(f, dir)
	return slices.Contains(found, begunName), err
}

// Dir is the folder that shards write their parts to.
func (w *Writer) Dir() string { return w.path }

// Add takes what one shard has written into the snapshot.
func (w *Writer) Add(p *Part) {
	for _, f := range p.Files {
		w.info.Files = append(w.info.Files, f)
		if f.Kind == KindRows {
			w.info.Tables[f.Table].Rows += w.info.TotalRows(f)
		}
		w.wrote += f.Bytes
	}
	w.digest.Add(&p.Digest)
}

// Commit writes the manifest; only then the snapshot exists (invariant 4). When the error is nil the snapshot is durable.
func (w *Writer) Commit() (*Info, error) {
	if w.info.Base == nil {
		w.info.Digest = w.info.digest(w.digest)
	}
	b, err := w.info.encode()
	if err != nil {
		return nil, err
	}
	w.need = max(w.need, w.wrote+w.info.Manifest)
	if err := put(w.fs, filepath.Join(w.path, ManifestName), b); err != nil {
		return nil, w.fail(err)
	}
	w.info.Path = w.path
	// It blocks nobody: a writer killed before this leaves it to Clean.
	_ = remove(w.fs, filepath.Join(w.path, begunName))
	return w.info, nil
}

// digest is the digest of a whole snapshot, whose rows and tensors have that of d.
func (i *Info) digest(d Digest) string {
	for source, splits := range i.Positions {
		for split, p := range splits {
			d.Split(source, split, p)
		}
	}
	for key, value := range i.State {
		d.State(key, value)
	}
	return d.String()
}

// Abort removes what was written.
func (w *Writer) Abort() error { return remove(w.fs, w.path) }

// fail says what failed, and for a full disk what can be done; need and wrote are bytes.
func fail(path string, need, wrote int64, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("snapshot: %s: %w: about %d bytes are needed, the disk was full after %d; the snapshots before it are whole; free space, keep fewer snapshots or name another folder: %w",
			path, ErrNoSpace, max(need, wrote), wrote, err)
	}
	if errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("snapshot: writing %s: a file may not have as many bytes as this one needs: raise the limit of this process (ulimit -f), or name a folder whose file system takes larger ones; the snapshots before it are whole: %w", path, err)
	}
	if do, known := fsx.Advice(err); known {
		return fmt.Errorf("snapshot: writing %s: %w; %s, or name another folder; the snapshots before it are whole", path, err, do)
	}
	return fmt.Errorf("snapshot: writing %s: %w", path, err)
}

func (w *Writer) fail(err error) error { return fail(w.path, w.need, w.wrote, err) }
