package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
)

// exportTarget is the store that exports go to.
type exportTarget struct {
	*remote.Store
	url    fsx.URL
	unhook func() bool
}

// openTarget opens the store of o.Dir, where that is a URL, and returns the folder of this machine where exports for it are written first; nil: Dir is a folder of this machine.
func (o *ExportModelOptions) openTarget(ctx context.Context) (_ *exportTarget, root string, err error) {
	if !fsx.IsURL(o.Dir) {
		root, err = filepath.Abs(o.Dir)
		if err != nil {
			err = fmt.Errorf("job: %w", err)
		}
		return nil, root, err
	}
	u, err := fsx.ParseURL(o.Dir)
	if err != nil {
		return nil, "", fault.Config("job: the URL %w", err)
	}
	if o.Runner != spec.RunnerLocal {
		return nil, "", fault.Config("job: %s is a store, and %s writes to a folder that all executors have: take --runner=local, or name such a folder", u, o.Runner)
	}
	spool := o.Spool
	if spool == "" {
		if spool, err = userCache("spool"); err != nil {
			return nil, "", err
		}
	}
	if root, err = filepath.Abs(filepath.Join(spool, entryName(u, ""))); err != nil {
		return nil, "", fmt.Errorf("job: %w", err)
	}
	store, err := remote.Open(ctx, u)
	if err != nil {
		return nil, "", fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	return &exportTarget{store, u, context.AfterFunc(ctx, func() { _ = store.Close() })}, root, nil
}

// close ends what is under way.
func (t *exportTarget) close() error {
	if t == nil {
		return nil
	}
	t.unhook()
	return t.Close()
}

// partialName is the file of a store that says that an export is being uploaded, and which: it has what [exportFile] will have.
func partialName(name string) string { return "." + name + ".partial" }

// claim makes a name of the store one of this export. already: all of it is there.
func (t *exportTarget) claim(ctx context.Context, name string, text []byte) (already bool, err error) {
	for _, file := range []string{filepath.Join(name, exportFile), partialName(name)} {
		has, err := fsx.ReadFile(ctx, t, file, 1<<20)
		switch {
		case err == nil && !bytes.Equal(has, text):
			return false, fault.Config("job: %s has another export, which %s describes: name another folder, or remove that one", t.url.Join(name), t.url.Join(filepath.ToSlash(file)))
		case err == nil:
			return file != partialName(name), nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, cacheFault(err)
		}
	}
	if infos, err := t.List(ctx, name); err == nil && len(infos) > 0 {
		return false, fault.Config("job: %s is not empty, and its files are no export: name another folder", t.url.Join(name))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, cacheFault(err)
	}
	return false, cacheFault(fsx.WriteFile(ctx, t, partialName(name), text))
}

// outsideLast orders the files of an export: those that readers look for first come last, and the one that says that it is complete behind all.
func outsideLast(a, b string) int {
	rank := func(name string) int {
		switch name {
		case exportFile:
			return 2
		case native.ManifestName:
			return 1
		}
		return -strings.Count(name, "/")
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
}

// upload copies an export of this machine to the store, under a name that was claimed. Files that an earlier call has uploaded are read, compared and not sent again.
func (t *exportTarget) upload(ctx context.Context, dir, name string, told func(done, total int64)) error {
	sizes := map[string]int64{}
	var names []string
	total, done := int64(0), int64(0)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		names, sizes[rel] = append(names, rel), info.Size()
		total += info.Size()
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(names, outsideLast)
	if err := t.strangers(ctx, name, "", sizes); err != nil {
		return err
	}
	buf := make([]byte, 2<<20)
	for _, file := range names {
		err := t.put(ctx, filepath.Join(dir, filepath.FromSlash(file)), filepath.Join(name, filepath.FromSlash(file)), buf, func(n int64) {
			done += n
			if told != nil {
				told(done, total)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := t.Remove(ctx, partialName(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// strangers removes what the claimed name has and the export has not: a run that wrote other files was cut short.
func (t *exportTarget) strangers(ctx context.Context, name, below string, files map[string]int64) error {
	infos, err := t.List(ctx, filepath.Join(name, filepath.FromSlash(below)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range infos {
		file := strings.TrimPrefix(below+"/"+i.Name, "/")
		if i.Dir {
			err = t.strangers(ctx, name, file, files)
		} else if _, ours := files[file]; !ours {
			err = t.Remove(ctx, filepath.Join(name, filepath.FromSlash(file)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put copies a file to the store, unless it is there.
func (t *exportTarget) put(ctx context.Context, from, name string, buf []byte, more func(int64)) (err error) {
	in, err := fsx.Local{}.Open(ctx, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	size := in.Info().Size
	has, err := t.Stat(ctx, name)
	if err == nil && has.Size == size {
		same, err := t.same(ctx, in, name, buf)
		if err != nil {
			return err
		}
		if same {
			more(size)
			return nil
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := t.Create(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := fsx.Copy(ctx, out, in, buf, more); err != nil {
		return err
	}
	return out.Commit(ctx)
}

// same reports whether the store has a file as it is here, of the same size.
func (t *exportTarget) same(ctx context.Context, here fsx.File, name string, buf []byte) (_ bool, err error) {
	there, err := t.Open(ctx, name)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, there.Close()) }()
	a, b := fsx.NewReader(here), fsx.NewReader(there)
	for left := here.Info().Size; left > 0; {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		n := min(left, int64(len(buf)/2))
		x, y := buf[:n], buf[len(buf)/2:][:n]
		if _, err := io.ReadFull(a, x); err != nil {
			return false, err
		}
		if _, err := io.ReadFull(b, y); err != nil {
			return false, err
		}
		if !bytes.Equal(x, y) {
			return false, nil
		}
		left -= n
	}
	return true, nil
}

// remove removes an export, so that nobody takes a part of it for all: what readers look for goes first, and what says that it is ours last.
func (t *exportTarget) remove(ctx context.Context, name string) error {
	infos, err := t.List(ctx, name)
	if err != nil {
		return err
	}
	gone := []string{native.ManifestName}
	for _, i := range infos {
		if i.Name != exportFile && i.Name != native.ManifestName {
			gone = append(gone, i.Name)
		}
	}
	for _, file := range gone {
		if err := fsx.RemoveAll(ctx, t, filepath.Join(name, file)); err != nil {
			return err
		}
	}
	return fsx.RemoveAll(ctx, t, name)
}

// upload brings the export that is complete on this machine to its store, and removes it here.
func (e *exporting) upload(ctx context.Context, r *result.ExportedModel, dir, name string) error {
	e.unwatch()
	began := time.Now()
	e.o.Notice("uploading to " + e.called(name))
	within, end := untilDrained(ctx, e.o.Drain)
	defer end()
	err := e.store.upload(within, dir, name, bytesTold("upload", began, e.o.Status))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && wasDrained(ctx, within):
		r.Drained = true
		return nil
	case err != nil:
		return cacheFault(err)
	}
	e.o.Notice(fmt.Sprintf("uploaded in %s", time.Since(began).Round(time.Millisecond)))
	return cannotExport(os.RemoveAll(dir))
}
