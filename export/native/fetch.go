package native

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/fsx"
)

// Place is where an export may be.
type Place struct {
	// Number is that of its snapshot: its folder's name; 1 where that is no number.
	Number uint64
	Dir    string
}

// Find returns where in a folder exports may be, the newest first: the folder itself if it has a manifest, otherwise those of its folders that are called by a number. Whether
// one is complete is found by [Open] and [Fetch], which return [ErrNone] where it is not. Errors: [ErrNone] where there is no such place; those of the file system.
func Find(ctx context.Context, in fsx.FS, dir string) ([]Place, error) {
	_, err := in.Stat(ctx, filepath.Join(dir, ManifestName))
	if err == nil {
		number, err := strconv.ParseUint(filepath.Base(dir), 10, 63)
		if err != nil {
			number = 1
		}
		return []Place{{number, dir}}, nil
	}
	var infos []fsx.Info
	if errors.Is(err, fs.ErrNotExist) {
		infos, err = in.List(ctx, dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) { // a file has none
		return nil, fmt.Errorf("native: %w", err)
	}
	var out []Place
	for _, i := range infos {
		if n, err := strconv.ParseUint(i.Name, 10, 63); err == nil && i.Dir && strconv.FormatUint(n, 10) == i.Name {
			out = append(out, Place{n, filepath.Join(dir, i.Name)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("native: %s: %w", dir, ErrNone)
	}
	slices.SortFunc(out, func(a, b Place) int { return cmp.Compare(b.Number, a.Number) })
	return out, nil
}

// FetchOptions are what [Fetch] asks and tells. The zero value works.
type FetchOptions struct {
	// ModelOnly leaves out the files of rows, for [OpenModel].
	ModelOnly bool
	// Part leaves out the files that have no rows of it, for [OpenPart]; nil: none. A folder is for one part.
	Part *Part
	// Room is called before rows are copied, with how many bytes the export has in all and how many of them are missing; an error ends the fetching. nil: nobody is asked.
	Room func(total, missing int64) error
	// Progress is told how many bytes of how many are there; nil: nobody is.
	Progress func(done, total int64)
}

// partial is where what is fetched to a folder lies until all of it is there.
func partial(to string) string {
	return filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+".partial")
}

// Fetch copies an export, the folder name of a store, into a folder of this machine, where it has its name once all of it is there, durable and compared with its checksums, rows
// included. What has the name and is another export is replaced. Files that an earlier call has left are read and not copied again. It holds a mebibyte at a time. Errors: [ErrNone] where there is no complete export,
// [ErrVersion], [ErrCorrupt], which names the file; those of Room and of the file systems; the context's.
func Fetch(ctx context.Context, from fsx.FS, name, to string, o FetchOptions) error {
	err := fetch(ctx, from, name, to, o)
	if errors.Is(err, ErrNone) {
		return fmt.Errorf("native: %s: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("native: fetching %s: %w", name, err)
	}
	return nil
}

func fetch(ctx context.Context, from fsx.FS, name, to string, o FetchOptions) error {
	text, err := fsx.ReadFile(ctx, from, filepath.Join(name, ManifestName), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", err, ErrNone)
	}
	if err != nil {
		return err
	}
	m, _, err := decodeManifest(text)
	if err != nil {
		return fmt.Errorf("%s: %w", ManifestName, err)
	}
	if has, err := os.ReadFile(filepath.Join(to, ManifestName)); err == nil && bytes.Equal(has, text) {
		return nil
	}
	f := fetching{from: from, name: name, dir: partial(to), buf: make([]byte, 1<<20), o: o}
	m.Files = slices.DeleteFunc(m.Files, func(f file) bool { return f.Table >= 0 && (o.ModelOnly || !o.Part.needs(f)) })
	missing, err := f.missing(ctx, m.Files)
	if err != nil {
		return err
	}
	if o.Room != nil {
		if err := o.Room(f.total, f.total-f.done); err != nil {
			return err
		}
	}
	f.tell(0)
	for _, file := range missing {
		if err := f.copy(ctx, file.Name, file.Bytes); err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
		if err := f.check(ctx, file); err != nil {
			return fmt.Errorf("%s: %w", file.Name, errors.Join(err, os.Remove(f.path(file.Name))))
		}
	}
	if err := f.copy(ctx, export.WarmupName, -1); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", export.WarmupName, err)
	}
	if err := fsx.WriteFile(ctx, fsx.Local{}, f.path(ManifestName), text); err != nil {
		return err
	}
	return replace(f.dir, to)
}

// replace gives a folder another name, and removes what has it.
func replace(from, to string) error {
	aside := filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+".removed")
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(to, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.Rename(from, to), (fsx.OS{}).SyncDir(filepath.Dir(to))); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// fetching is a Fetch under way.
type fetching struct {
	from        fsx.FS
	name, dir   string // in from, and on this machine
	buf         []byte
	done, total int64 // bytes of the files that the manifest names
	o           FetchOptions
}

func (f *fetching) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *fetching) tell(more int64) {
	f.done += more
	if f.o.Progress != nil {
		f.o.Progress(f.done, f.total)
	}
}

// missing are the files that are not there whole. What is there and is none of them is removed.
func (f *fetching) missing(ctx context.Context, files []file) (out []file, err error) {
	whole := map[string]bool{}
	for _, file := range files {
		f.total += file.Bytes
		err := f.check(ctx, file)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil { // it is copied, in place of what there is
			out = append(out, file)
			continue
		}
		whole[f.path(file.Name)] = true
		f.done += file.Bytes
	}
	err = filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || whole[path] {
			return err
		}
		return os.Remove(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return out, err
}

// copy copies a file of so many bytes; below 0: nobody knows.
func (f *fetching) copy(ctx context.Context, name string, size int64) (err error) {
	in, err := f.from.Open(ctx, filepath.Join(f.name, filepath.FromSlash(name)))
	if err != nil {
		if size >= 0 && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", err, ErrCorrupt)
		}
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if has := in.Info().Size; size >= 0 && has != size {
		return fmt.Errorf("%d bytes of %d: %w", has, size, ErrCorrupt)
	}
	out, err := fsx.Local{}.Create(ctx, f.path(name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	more := f.tell
	if size < 0 {
		more = func(int64) {}
	}
	if err := fsx.Copy(ctx, out, in, f.buf, more); err != nil {
		return err
	}
	return out.Commit(ctx)
}

// check compares a file that was copied with what the manifest says of it. Errors: [ErrCorrupt] for another one; those of the disk.
func (f *fetching) check(ctx context.Context, want file) (err error) {
	in, err := fsx.Local{}.Open(ctx, f.path(want.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	size := in.Info().Size
	if size != want.Bytes {
		return fmt.Errorf("%d bytes of %d: %w", size, want.Bytes, ErrCorrupt)
	}
	end := size
	if want.Table >= 0 {
		footer, err := readFooter(in, size)
		if err != nil {
			return err
		}
		end = footer.end()
	}
	sum, err := checksum(ctx, in, end, f.buf)
	if err != nil {
		return err
	}
	if sum != want.CRC32C {
		return fmt.Errorf("bytes 0 to %d have the checksum %08x, not %08x: %w", end, sum, want.CRC32C, ErrCorrupt)
	}
	return nil
}

// checksum is that of the bytes of a file up to an end.
func checksum(ctx context.Context, in io.ReaderAt, end int64, buf []byte) (sum uint32, err error) {
	for at := int64(0); at < end; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := in.ReadAt(buf[:min(end-at, int64(len(buf)))], at)
		if n == 0 {
			return 0, fmt.Errorf("at byte %d of %d: %w", at, end, errors.Join(err, io.ErrUnexpectedEOF))
		}
		sum = crc32.Update(sum, castagnoli, buf[:n])
		at += int64(n)
	}
	return sum, nil
}
