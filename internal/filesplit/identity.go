package filesplit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Files are the files of a source, under names that stay while files are moved, renamed, copied or appended to: a file is
// the one that was known before if it begins with all the bytes that were last seen of that, whatever its path. Methods may overlap.
type Files struct {
	fs       fsx.FS
	patterns []string
	known    known
	inOrder  bool

	mu   sync.Mutex
	list []File // the last
}

// known is what is known of files by their names.
type known struct {
	first map[string]string // identities
	seen  map[string]string // the same of what was last seen of those that have grown
	// follow are those that a longer file of any name is.
	follow map[string]bool
}

// last is the identity of what was last seen of a file.
func (k known) last(name string) string { return cmp.Or(k.seen[name], content(k.first[name])) }

// NewFiles describes the files of a file system that the patterns name (see [Expand]). identities are those, by name, of the files that
// the source had before, seen what [File.Seen] was of those that had grown; they are not changed any more. No more is read of these files than
// that, so that no position lies behind what is known of its file. follow names those that a longer file is under any name, such as a log that was
// written to until it was rotated; others it is under the same last name alone. inOrder keeps the order of the patterns.
func NewFiles(in fsx.FS, patterns []string, identities, seen map[string]string, follow map[string]bool, inOrder bool) *Files {
	return &Files{fs: in, patterns: patterns, known: known{first: identities, seen: seen, follow: follow}, inOrder: inOrder}
}

// List looks which files there are and returns them, sorted by name or in the order of the patterns, with identities. A file that is known has its former
// name and identity. A new one has the name that [Expand] gives it, with a number where a known file of other bytes has
// that name: `part-0.csv~2`. Of a new file is read what it holds now. Errors: those of [Expand] and of the file system.
func (f *Files) List(ctx context.Context) ([]File, error) {
	expand := Expand
	if f.inOrder {
		expand = ExpandInOrder
	}
	files, err := expand(ctx, f.fs, f.patterns)
	if err != nil {
		return nil, err
	}
	if err := recognise(files, f.known, func(file *File, size int64) (string, error) { return f.identity(ctx, file, size) }); err != nil {
		return nil, err
	}
	if !f.inOrder {
		slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = files
	return slices.Clone(files), nil
}

// Find returns the file of a name.
func (f *Files) Find(ctx context.Context, name string) (File, error) {
	f.mu.Lock()
	files := f.list
	f.mu.Unlock()
	if files == nil {
		var err error
		if files, err = f.List(ctx); err != nil {
			return File{}, err
		}
	}
	if i := slices.IndexFunc(files, func(f File) bool { return f.Name == name }); i >= 0 {
		return files[i], nil
	}
	return File{}, fmt.Errorf("there is no file %q among those of %q", name, f.patterns)
}

// Open opens a file of the list, to read no more of it than its Size, also where it grows while it is read. Where another lies under its path by
// now, as after the rotation of a log, it is looked for under the paths that there are. Errors: those of the file system; one that says so when the file is gone.
func (f *Files) Open(ctx context.Context, file File) (fsx.File, error) {
	in, err := f.fs.Open(ctx, file.Path)
	if err == nil {
		now := in.Info()
		if now.Size == file.whole.Size && now.ModTime.Equal(file.whole.ModTime) {
			return &bounded{File: in, size: file.Size}, nil
		}
		var is bool
		if is, err = file.stillBegins(in); is {
			return &bounded{File: in, size: file.Size}, nil
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	there, listed := expandAll(ctx, f.fs, f.patterns)
	if listed != nil {
		return nil, errors.Join(err, listed)
	}
	for _, other := range there {
		if other.Size < file.Size || other.Path == file.Path {
			continue
		}
		moved, err := f.fs.Open(ctx, other.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		is, err := file.stillBegins(moved)
		if is {
			return &bounded{File: moved, size: file.Size}, nil
		}
		if err = errors.Join(err, moved.Close()); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s has been replaced since it was listed, and what it was is not among %q; run again to read what is there now", file.Path, f.patterns)
}

// stillBegins reports whether an open file begins with what was listed.
func (f *File) stillBegins(in fsx.File) (bool, error) {
	if in.Info().Size < f.Size {
		return false, nil
	}
	got, err := identityOf(in, f.Size)
	return got == f.read, err
}

// bounded is the beginning of a file.
type bounded struct {
	fsx.File
	size int64
}

// Info implements [fsx.File].
func (b *bounded) Info() fsx.Info {
	info := b.File.Info()
	info.Size = b.size
	return info
}

// ReadAt implements [io.ReaderAt].
func (b *bounded) ReadAt(p []byte, at int64) (int, error) {
	left := b.size - at
	if left <= 0 {
		return 0, io.EOF
	}
	if int64(len(p)) <= left {
		return b.File.ReadAt(p, at)
	}
	n, err := b.File.ReadAt(p[:left], at)
	if err == nil {
		err = io.EOF
	}
	return n, err
}

// recognise gives files their identities, and those that are known their former names.
func recognise(files []File, known known, identity func(f *File, size int64) (string, error)) error {
	free := map[string]bool{} // known files that none was recognised as
	for name := range known.first {
		free[name] = true
	}
	take := func(f *File, name string) (err error) {
		f.Name, f.Identity, f.Seen = name, known.first[name], known.last(name)
		delete(free, name)
		size, _ := sizeOf(f.Seen)
		if f.Size > size { // it has grown since
			if f.Seen, err = identity(f, f.Size); err != nil {
				return err
			}
			f.Size = size
		}
		if f.Seen == content(f.Identity) {
			f.Seen = ""
		}
		f.read = known.last(name)
		return nil
	}
	var left []*File
	for i := range files {
		f := &files[i]
		if known.first[f.Name] != "" {
			is, err := f.is(f.Name, known, identity)
			if err != nil {
				return err
			}
			if is {
				if err := take(f, f.Name); err != nil {
					return err
				}
				continue
			}
		}
		left = append(left, f)
	}
	// One may have become what another began with, so the one that most is known of comes first.
	names := slices.SortedFunc(maps.Keys(known.first), func(a, b string) int {
		sizeA, _ := sizeOf(known.last(a))
		sizeB, _ := sizeOf(known.last(b))
		return cmp.Or(cmp.Compare(sizeB, sizeA), cmp.Compare(a, b))
	})
	search := func(is func(f *File, name string) (bool, error)) error {
		for i, f := range left {
			for _, name := range names {
				if !free[name] {
					continue
				}
				ok, err := is(f, name)
				if err == nil && ok {
					err = take(f, name)
				}
				if err != nil {
					return err
				}
				if ok {
					left[i] = nil
					break
				}
			}
		}
		left = slices.DeleteFunc(left, func(f *File) bool { return f == nil })
		return nil
	}
	for _, f := range left {
		var err error
		if f.Identity, err = identity(f, f.Size); err != nil {
			return err
		}
		f.read = f.Identity
	}
	err := search(func(f *File, name string) (bool, error) {
		if f.Size == 0 || f.Identity != known.last(name) {
			return false, nil
		}
		return f.is(name, known, identity)
	})
	if err == nil { // moved, and appended to since
		err = search(func(f *File, name string) (bool, error) {
			if size, ok := sizeOf(known.last(name)); !ok || size == 0 || plain(name) != plain(f.Name) && !known.follow[name] {
				return false, nil
			}
			return f.is(name, known, identity)
		})
	}
	if err != nil {
		return err
	}
	used, outgrown := map[string]bool{}, map[string]bool{}
	for i := range files {
		used[files[i].Name] = known.first[files[i].Name] != ""
	}
	for name := range known.seen {
		outgrown[known.first[name]] = true
	}
	for _, f := range left {
		base := f.Name
		for n := 2; known.first[f.Name] != "" || used[f.Name]; n++ {
			f.Name = fmt.Sprintf("%s~%d", base, n)
		}
		used[f.Name] = true
		// What a file held that holds more by now is not enough to tell this one from it.
		first := f.Identity
		for n := 2; outgrown[f.Identity]; n++ {
			f.Identity = fmt.Sprintf("%s~%d", first, n)
		}
	}
	return nil
}

// plain is the last part of a name, without a number that [Files] has given it.
func plain(name string) string {
	base, _, _ := strings.Cut(path.Base(name), "~")
	return base
}

// is reports whether the file is a known one, as it was last seen or appended to since.
func (f *File) is(name string, known known, identity func(f *File, size int64) (string, error)) (bool, error) {
	first, last := content(known.first[name]), known.last(name)
	is, err := f.begins(last, identity)
	if !is || err != nil || first == last {
		return is, err
	}
	return f.begins(first, identity) // which looks where the other does not
}

// begins reports whether the file begins with what an identity speaks of.
func (f *File) begins(id string, identity func(f *File, size int64) (string, error)) (bool, error) {
	size, ok := sizeOf(id)
	if !ok || f.Size < size {
		return false, nil
	}
	got, err := identity(f, size)
	return got == id, err
}

// content is an identity without the number that [Files] gives it where another file once held the same.
func content(id string) string {
	id, _, _ = strings.Cut(id, "~")
	return id
}

// Larger is the one of two identities that speaks of more bytes.
func Larger(a, b string) string {
	sizeA, okA := sizeOf(a)
	if sizeB, ok := sizeOf(b); ok && (!okA || sizeB > sizeA) {
		return b
	}
	return a
}

// SizeOf is how many bytes an identity speaks of; 0 for what is none.
func SizeOf(id string) int64 {
	size, ok := sizeOf(id)
	if !ok {
		return 0
	}
	return size
}

// looked is how many bytes of a file's beginning, and of its end, make its identity.
const looked = 64 << 10

// identity is that of the first size bytes of a file.
func (f *Files) identity(ctx context.Context, file *File, size int64) (string, error) {
	in, err := f.fs.Open(ctx, file.Path)
	if err != nil {
		return "", err
	}
	id, err := identityOf(in, size)
	return id, errors.Join(err, in.Close())
}

// identityOf is that of the first size bytes of an open file: their number, and a hash of the first and the last of them.
func identityOf(in fsx.File, size int64) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, io.NewSectionReader(in, 0, min(size, looked)))
	if err == nil && size > looked {
		from := max(size-looked, looked)
		_, err = io.Copy(h, io.NewSectionReader(in, from, size-from))
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%s", size, hex.EncodeToString(h.Sum(nil)[:16])), nil
}

// sizeOf is how many bytes an identity speaks of.
func sizeOf(id string) (int64, bool) {
	text, _, ok := strings.Cut(id, ":")
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && err == nil && n >= 0
}
