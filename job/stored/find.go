package stored

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Names of snapshots for [EvalOptions].
const (
	Newest = "newest"
	Best   = "best"
)

// ToRead are the snapshots that were asked for (a path, a number, [Newest], [Best]), the one to read first. Where that is damaged the next one is read: see
// [Folder.Use]. A path of one snapshot and a number stand for that one alone.
func ToRead(c *spec.Config, asked string) (*Folder, error) {
	if asked == Best || asked == "" && c.Train.EarlyStop != nil {
		entries, err := snapshot.List(SnapshotsIn(c))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		best := bestOf(entries)
		switch {
		case len(best) > 0 && asked == Best:
			return Local(best), nil
		case len(best) > 0:
			f := Local(entries)
			f.BestFirst()
			return f, nil
		case asked == Best:
			return nil, fault.Config("job: there is no best snapshot in %s: one is marked after an epoch that was evaluated (eval.source), of several epochs or under train.early_stop", SnapshotsIn(c))
		}
	}
	if asked == "" || asked == Newest {
		asked = c.Dir
	} else if id, err := strconv.ParseUint(asked, 10, 64); err == nil {
		asked = snapshot.Path(SnapshotsIn(c), id)
	}
	entries, err := FindSnapshots(asked)
	if err != nil {
		return nil, err
	}
	return Local(entries), nil
}

// BestFirst has the best snapshots read before the others.
func (f *Folder) BestFirst() {
	best := bestOf(f.Entries)
	f.Entries = append(best, slices.DeleteFunc(slices.Clone(f.Entries), func(e snapshot.Entry) bool {
		return slices.ContainsFunc(best, func(b snapshot.Entry) bool { return b.ID == e.ID })
	})...)
}

// BestIn is the newest good snapshot of a folder that is marked as the best, of what is trained on now; nil: there is none.
func BestIn(f fsx.FS, dir string) (*snapshot.Info, error) {
	entries, err := snapshot.ListIn(f, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range bestOf(entries) {
		if e.Err == nil {
			return e.Info, nil
		}
	}
	return nil, nil
}

// bestOf are the snapshots that are marked as the best, of what is trained on now, the newest first. Some may be damaged.
func bestOf(entries []snapshot.Entry) (best []snapshot.Entry) {
	now := ""
	for _, e := range entries { // newest first
		if e.Info == nil {
			continue
		}
		source := trainedOn(e.Info)
		if now == "" {
			now = source
		}
		if e.Info.Label == BestLabel && source == now {
			best = append(best, e)
		}
	}
	return best
}

// trainedOn is the source that a snapshot's trainer was at.
func trainedOn(info *snapshot.Info) string {
	var s Trainer
	_ = json.Unmarshal(info.State[TrainerKey], &s) // what cannot be read says nothing
	return s.Source
}

// WhichIs describes which of the snapshots beside it a snapshot is.
func WhichIs(f fsx.FS, info *snapshot.Info) string {
	var is []string
	if info.Label == BestLabel {
		var s Trainer
		text := "best"
		if err := json.Unmarshal(info.State[TrainerKey], &s); err == nil && s.Top != nil {
			text = fmt.Sprintf("best, after epoch %d, %.5f", s.TopEpoch, *s.Top)
		}
		is = append(is, text)
	}
	entries, err := snapshot.ListIn(f, filepath.Dir(info.Path))
	if i := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Err == nil }); err == nil && i >= 0 && entries[i].Info.ID == info.ID {
		is = append(is, "newest")
	}
	return strings.Join(is, "; ")
}

// FindSnapshot finds the snapshot that a path means: a snapshot's folder, or the newest in a folder of snapshots or in a job's dir that is good by its
// manifest and the sizes of its files. What is read of it goes by [Folder.Use] or [Folder.Good].
func FindSnapshot(path string) (string, error) {
	entries, err := FindSnapshots(path)
	if err != nil {
		return "", err
	}
	info, err := Local(entries).Newest()
	if err != nil {
		return "", err
	}
	return info.Path, nil
}

// FindSnapshots returns the snapshots that a path stands for, the newest first: one, or those of a job's dir or of a folder of
// snapshots. There is one at least, which may be damaged.
func FindSnapshots(path string) ([]snapshot.Entry, error) {
	if path == "" { // of a variable that is not set, say: not what happens to lie where the program was started
		return nil, fault.Config("job: no snapshot is named: give a snapshot's folder, a folder of snapshots or a job's dir")
	}
	one := snapshot.ReadEntry(nil, path)
	if _, gone := os.Stat(path); one.Info != nil || gone == nil && snapshot.Named(path) {
		return []snapshot.Entry{one}, nil
	}
	for _, dir := range []string{filepath.Join(path, "snapshots"), path} {
		entries, err := snapshot.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return nil, err
		}
		if len(entries) > 0 {
			return entries, nil
		}
	}
	return nil, noSnapshot(context.Background(), fsx.Local{}, path, "in "+path+meant(path))
}

// Names of files that exports have: ExportFile describes one in its own folder, ExportList those of a folder, as bytedance/monolith lists them.
const (
	ExportFile = "_export.json"
	ExportList = "ExportSaverListenerState"
)

// noSnapshot is the error for a folder without snapshots, by what is there in their place. where is how the sentence names it.
func noSnapshot(ctx context.Context, in fsx.FS, dir, where string) error {
	advice := ": train the job first, or name a snapshot's folder"
	for _, name := range []string{ExportFile, ExportList} {
		if _, err := in.Stat(ctx, filepath.Join(dir, name)); err == nil {
			advice = ", which has exports: serve, predict and export verify take native ones; name the dir of the job that they are of, one of its snapshots, or where these are uploaded to"
		}
	}
	return fault.Config("job: no snapshot %s%s", where, advice)
}

// meant says of a path that is no folder what it is, and which one near it was meant, as the end of a sentence; empty: it is a folder.
func meant(path string) string {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return ", which is a file"
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	}
	const gone = ", which does not exist"
	near := meantNear(path)
	if near == "" {
		return gone
	}
	return fmt.Sprintf("%s, did you mean %q?", gone, near)
}

// meantNear is the path of a folder that a path which is not there was meant to be; empty: none is near.
func meantNear(path string) string {
	dir, base := filepath.Split(filepath.Clean(path))
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		if dir = filepath.Clean(dir); dir != filepath.Clean(path) {
			return meantNear(dir)
		}
		return ""
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if near := nearest.Name(base, names); near != "" {
		return dir + near
	}
	return ""
}

// BestLabel marks the snapshot of the best evaluation.
const BestLabel = "best"
