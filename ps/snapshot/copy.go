package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
)

// ErrTaken means that a folder has another snapshot of the number that a copy would have. Nothing of it was changed. Copy to another folder.
var ErrTaken = errors.New("another snapshot has this number")

// CopyOptions say where a snapshot is copied to.
type CopyOptions struct {
	// From has the snapshot; To is where it goes, below Dir, under the same number. nil is [fsx.Local].
	From, To fsx.FS
	Dir      string
	// Pause, if not nil, is called for each megabyte, and may wait: others go first then.
	Pause func()
	// Copied, if not nil, is called with the bytes of each file that was copied, the manifest's too.
	Copied func(bytes int64)
}

// copyPiece is how much of a file is in memory.
const copyPiece = 1 << 20

// Copy copies a snapshot to another folder, the manifest last: it is there as a whole or not at all. Of an incremental one the bases have
// to be there before, so that a reader finds them. Each file is compared with its checksum on the way.
//
// A copy that was cut short is continued: what it says of itself first is the time of the cut, and of the same one the files that are
// there are whole. A snapshot that the folder has is left as it is, with two exceptions. Files that are missing or cut short are copied again.
// Where the copied one was compacted since, it becomes a whole one there too, as [Compact] does it. Nothing else may write to the folder.
// Errors: [ErrCorrupt] for what is copied, [ErrTaken], those of both file systems, the context's.
func Copy(ctx context.Context, info *Info, o CopyOptions) error {
	from, to := disk(o.From), disk(o.To)
	path := Path(o.Dir, info.ID)
	there, err := ReadInfoIn(to, path)
	switch {
	case err == nil && !there.Created.Equal(info.Created):
		return fmt.Errorf("snapshot: %s was taken at %v, that which is copied at %v: %w", path, there.Created, info.Created, ErrTaken)
	case err == nil && (there.Checksum == info.Checksum || there.Base == nil):
		switch err := (&looker{fs: to}).present([]*Info{there}); {
		case err == nil:
			return nil
		case !errors.Is(err, ErrCorrupt):
			return err
		}
		// A file is missing or cut short: what is there is made whole.
	case err == nil: // compacted; its files have names of their own
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt):
		return err
	default:
		if err := begin(ctx, to, path, info); err != nil {
			return err
		}
	}
	for _, file := range info.Files {
		name := filepath.Join(path, file.Name)
		if have, err := to.Stat(ctx, name); err == nil && !have.Dir && have.Size == file.Bytes {
			continue
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := copyFile(ctx, from, filepath.Join(info.Path, file.Name), to, name, file, o.Pause); err != nil {
			return (&Snapshot{info: info}).named(file, err)
		}
		if o.Copied != nil {
			o.Copied(file.Bytes)
		}
	}
	one := *info
	b, err := one.encode()
	if err != nil {
		return err
	}
	if err := fsx.WriteFile(ctx, to, filepath.Join(path, ManifestName), b); err != nil {
		return err
	}
	if o.Copied != nil {
		o.Copied(int64(len(b)))
	}
	// It blocks nobody; what is left is for the next copy, or goes with the snapshot.
	if inside, err := names(to, path); err == nil {
		for _, name := range inside {
			if name != ManifestName && !slices.ContainsFunc(info.Files, func(f FileInfo) bool { return f.Name == name }) {
				_ = remove(to, filepath.Join(path, name))
			}
		}
	}
	return nil
}

// begin makes a place ready for the files of a snapshot: what is there of another cut, or with a damaged manifest, goes.
func begin(ctx context.Context, to fsx.FS, path string, info *Info) error {
	mark, whose := filepath.Join(path, begunName), info.Created.UTC().Format(time.RFC3339Nano)
	b, err := fsx.ReadFile(ctx, to, mark, copyPiece)
	if err == nil && string(b) == whose {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fsx.ErrTooLarge) {
		return err
	}
	if err := fsx.RemoveAll(ctx, to, path); err != nil {
		return err
	}
	return fsx.WriteFile(ctx, to, mark, []byte(whose))
}

// copyFile copies one file and compares it with what its manifest says.
func copyFile(ctx context.Context, from fsx.FS, source string, to fsx.FS, target string, file FileInfo, pause func()) (err error) {
	src, err := from.Open(ctx, source)
	if err != nil {
		return unreadable(err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if src.Info().Size != file.Bytes {
		return fmt.Errorf("%d bytes of %d: %w", src.Info().Size, file.Bytes, ErrCorrupt)
	}
	w, err := to.Create(ctx, target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	h, buf := sha256.New(), make([]byte, min(copyPiece, file.Bytes))
	for at := int64(0); at < file.Bytes; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := buf[:min(int64(len(buf)), file.Bytes-at)]
		if n, err := src.ReadAt(piece, at); n < len(piece) {
			return unreadable(err)
		}
		if _, err := h.Write(piece); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		at += int64(len(piece))
		if pause != nil {
			pause()
		}
	}
	if sum := h.Sum(nil); hex.EncodeToString(sum) != file.SHA256 {
		return fmt.Errorf("bytes 0 to %d: checksum mismatch (want %s, got %x): %w", file.Bytes, file.SHA256, sum, ErrCorrupt)
	}
	return w.Commit(ctx)
}
