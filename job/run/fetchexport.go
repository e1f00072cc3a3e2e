package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// ExportCache is a folder of this machine with copies of exports that lie in stores: rows are mapped into memory, so that they must be on a disk of this machine.
type ExportCache struct {
	// Dir is the folder; empty: monolith/exports in the user's folder of caches.
	Dir string
	// MaxBytes is how many bytes the copies have together at most; 0: 64 GiB. Those that were asked for longest ago are removed first.
	MaxBytes int64
}

// FetchExportOptions say which export is brought to this machine. URL is required.
type FetchExportOptions struct {
	// URL is that of a native export, or of a folder of exports for the newest complete one in it.
	URL   string
	Cache ExportCache
	// Notice is called with one line for the user; nil: nobody is notified. Status is told how many bytes are there; nil: nobody is.
	Notice func(string)
	Status func(result.Status)
}

// FetchedExport is an export of a store that is on this machine.
type FetchedExport struct {
	// URL is what it is called in its store, and Dir the copy's folder, which another fetch may remove once the export is open.
	URL, Dir string
}

// FetchExport brings a native export from a store to this machine, where [Alone], [Predict] and [VerifyExport] open it. Each file is compared with its checksum; what is there already is not copied again, and a call
// that was cut short is continued by the next. Errors: [pipeline.ErrConfig] where there is none, or none that has room; [pipeline.ErrUnavailable]; [native.ErrCorrupt], which names the file.
func FetchExport(ctx context.Context, o FetchExportOptions) (_ *FetchedExport, err error) {
	c, err := openCopies(o.URL, "", o.Cache)
	if err != nil {
		return nil, err
	}
	if o.Notice != nil {
		c.notice = o.Notice
	}
	c.status = o.Status
	defer func() { err = errors.Join(err, c.close()) }()
	there, err := c.places(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range there {
		dir, err := c.fetch(ctx, p)
		if errors.Is(err, native.ErrNone) { // it is being written
			continue
		}
		if err != nil {
			return nil, err
		}
		return &FetchedExport{URL: c.called(p), Dir: dir}, nil
	}
	return nil, c.none()
}

// copies are the exports of a URL that are on this machine: CACHE/NAME-HASH/NUMBER.
type copies struct {
	url   fsx.URL // of an export, or of the folder of exports
	cache string
	dir   string // the entry of this URL
	most  int64
	// modelOnly leaves rows where they are.
	modelOnly bool
	// part leaves rows that are not of it where they are; nil: none.
	part   *native.Part
	notice func(string)
	status func(result.Status)
	store  *remote.Store // nil: it is opened when it is asked
	unhook func() bool
}

// openCopies makes the entry of a URL. Who keeps exports by a rule of its own (says) has one of its own.
func openCopies(text, says string, o ExportCache) (*copies, error) {
	u, err := fsx.ParseURL(text)
	if err != nil {
		return nil, fault.Config("job: the URL %w", err)
	}
	if snapshot.Named(u.Path) {
		return nil, fault.Config("job: %s is a snapshot; export it (monolith export %s --format native --dir DIR), or fetch it (monolith snapshot fetch)", u, u)
	}
	c := &copies{url: u, cache: o.Dir, most: cmp.Or(o.MaxBytes, 64<<30), notice: func(string) {}}
	if c.cache == "" {
		if c.cache, err = userCache("exports"); err != nil {
			return nil, err
		}
	}
	if c.cache, err = filepath.Abs(c.cache); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	c.dir = filepath.Join(c.cache, entryName(c.url, says))
	return c, nil
}

// userCache is a folder of the program in the user's folder of caches.
func userCache(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fault.Config("job: the environment names no folder for caches (%w): name one", err)
	}
	return filepath.Join(dir, "monolith", name), nil
}

// entryName names a folder for what lies at a URL.
func entryName(u fsx.URL, says string) string {
	return export.Folder(path.Base(u.Path)) + "-" + hashed(u.String()+" "+says)
}

// called is the URL of an export.
func (c *copies) called(p native.Place) string { return c.url.Join(filepath.ToSlash(p.Dir)) }

// none says that there is no export.
func (c *copies) none() error {
	return fault.Config("job: there is no complete native export at %s: neither the file %s nor folders that are numbers with one", c.url, native.ManifestName)
}

func (c *copies) open(ctx context.Context) (err error) {
	if c.store != nil {
		return nil
	}
	if c.store, err = remote.Open(ctx, c.url); err != nil {
		return fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	store := c.store
	c.unhook = context.AfterFunc(ctx, func() { _ = store.Close() }) // who stops waits for no answer
	return nil
}

// close closes the store, which is opened again when it is asked again.
func (c *copies) close() error {
	if c.store == nil {
		return nil
	}
	store := c.store
	c.store = nil
	c.unhook()
	return store.Close()
}

// places are the exports that the store has, the newest first.
func (c *copies) places(ctx context.Context) ([]native.Place, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	out, err := native.Find(ctx, c.store, ".")
	switch {
	case errors.Is(err, native.ErrNone):
		infos, _ := c.store.List(ctx, ".") // what is wrong with it is known
		if slices.ContainsFunc(infos, func(i fsx.Info) bool { return snapshot.Named(i.Name) }) {
			return nil, fault.Config("job: %s has snapshots and no exports; export one (monolith export %s --format native --dir DIR), or fetch it (monolith snapshot fetch)", c.url, c.url)
		}
		return nil, c.none()
	case err != nil:
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	if n, err := strconv.ParseUint(path.Base(c.url.Path), 10, 63); err == nil && out[0].Dir == "." {
		out[0].Number = n
	}
	return out, nil
}

// phaseFetch is what a status says while an export is copied.
const phaseFetch = "fetch"

// fetch brings an export here and returns its folder. Those of the entry that are kept are not removed to make room.
func (c *copies) fetch(ctx context.Context, p native.Place, kept ...string) (dir string, err error) {
	dir = filepath.Join(c.dir, strconv.FormatUint(p.Number, 10))
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return "", cacheFault(err)
	}
	lock, err := c.lock(ctx, c.dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	began := time.Now()
	noticed := false
	o := native.FetchOptions{
		ModelOnly: c.modelOnly, Part: c.part,
		Room: func(total, missing int64) error {
			c.notice(fmt.Sprintf("fetching %s, %d bytes of %d, to %s", c.called(p), missing, total, dir))
			noticed = true
			return c.room(ctx, total, slices.Concat(kept, []string{dir}))
		},
		Progress: bytesTold(phaseFetch, began, c.status),
	}
	if err := native.Fetch(ctx, c.store, p.Dir, dir, o); ctx.Err() != nil {
		return "", context.Cause(ctx)
	} else if err != nil {
		return "", cacheFault(err)
	}
	if noticed {
		c.notice(fmt.Sprintf("fetched %s in %s", c.called(p), time.Since(began).Round(time.Millisecond)))
	}
	now := time.Now()
	return dir, os.Chtimes(dir, now, now) // asked for last
}

// bytesTold makes a status of bytes, about four times a second.
func bytesTold(phase string, began time.Time, status func(result.Status)) func(done, total int64) {
	if status == nil {
		return nil
	}
	last := time.Time{}
	return func(done, total int64) {
		now := time.Now()
		if done < total && now.Sub(last) < glanceEvery {
			return
		}
		last = now
		elapsed := now.Sub(began)
		status(result.Status{Phase: phase, Bytes: true, Examples: done, Total: total, Lag: -1, Rate: float64(done) / max(elapsed.Seconds(), 1e-9), Elapsed: elapsed})
	}
}

// cacheFault is an error of copying, unless it is one of what is copied: of the store, or of the disk.
func cacheFault(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if ours := fault.Unavailable(err); errors.Is(ours, native.ErrCorrupt) || errors.Is(ours, native.ErrVersion) || errors.Is(ours, pipeline.ErrConfig) || errors.Is(ours, pipeline.ErrUnavailable) {
		return ours
	}
	return fault.Mark(fmt.Errorf("job: %w", err), pipeline.ErrUnavailable, "what is copied stays, and the same command continues; where the disk is full, name a folder on another one")
}

// lock claims an entry, for which one process fetches at a time.
func (c *copies) lock(ctx context.Context, dir string) (*fsx.Lock, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for noticed := false; ; noticed = true {
		l, err := fsx.TryLock(filepath.Join(dir, exportLock))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, fsx.ErrLocked) {
			return nil, cacheFault(err)
		}
		if !noticed {
			c.notice(fmt.Sprintf("waiting for another process that fetches to %s", dir))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// room removes copies of the cache, those that were asked for longest ago first, until one of so many bytes may come. What is open stays open where its folder is removed.
func (c *copies) room(ctx context.Context, bytes int64, kept []string) error {
	type copied struct {
		dir   string
		used  time.Time
		bytes int64
	}
	if bytes > c.most {
		return fault.Config("job: the export has %d bytes, and copies of exports may have %d together: allow more (--cache-bytes)", bytes, c.most)
	}
	var all []copied
	sum := bytes
	entries, err := os.ReadDir(c.cache)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		inside, err := os.ReadDir(filepath.Join(c.cache, entry.Name()))
		if err != nil {
			continue // a file of somebody else's, or removed meanwhile
		}
		for _, d := range inside {
			dir := filepath.Join(c.cache, entry.Name(), d.Name())
			name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(d.Name(), "."), ".partial"), ".removed")
			info, err := d.Info()
			if err != nil || !d.IsDir() || !isNumber(name) || filepath.Join(c.cache, entry.Name(), name) == kept[len(kept)-1] {
				continue
			}
			of := copied{dir: dir, used: info.ModTime()}
			err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					if info, err := d.Info(); err == nil {
						of.bytes += info.Size()
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			sum += of.bytes
			if !slices.Contains(kept, dir) {
				all = append(all, of)
			}
		}
	}
	slices.SortFunc(all, func(a, b copied) int { return a.used.Compare(b.used) })
	for _, old := range all {
		if sum <= c.most {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if entry := filepath.Dir(old.dir); entry != c.dir { // nobody fetches there now
			l, err := fsx.TryLock(filepath.Join(entry, exportLock))
			if err != nil {
				continue
			}
			err = os.RemoveAll(old.dir)
			if err = errors.Join(err, l.Close()); err != nil {
				return err
			}
		} else if err := os.RemoveAll(old.dir); err != nil {
			return err
		}
		sum -= old.bytes
	}
	if sum > c.most {
		return fault.Config("job: with the export of %d bytes copies of exports would have %d together, all others of which are in use, and may have %d: allow more (--cache-bytes)", bytes, sum, c.most)
	}
	return nil
}
