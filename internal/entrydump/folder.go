package entrydump

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Checkpoint is a folder of tables, as its file names describe it.
type Checkpoint struct {
	// Assets is the folder, Prefix what the names of the dense variables' files begin with (…/model.ckpt-1200); empty when there is no
	// such name, as in an exported model.
	Assets, Prefix string
	// Step is the number in the prefix, -1 without one.
	Step int64
	// Files are what tables lie in, Filters the counters of admission filters, by name. Others are files that are neither.
	Files, Filters []File
	Others         []string
}

// File is what one table, or many, were written to: a file for each shard.
type File struct {
	// Name is what the names of the files begin with.
	Name string
	// Multi reports whether it holds many tables, in compressed files beside which others say what is in them.
	Multi  bool
	Shards int
	// Bytes are those of all shards.
	Bytes int64
}

// Names of files.
const (
	checkpointName = "checkpoint"
	assetsSuffix   = ".assets"
	filterPrefix   = "hash_filter_"
	metaSuffix     = ".meta"
)

var (
	shardName = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})$`)
	tmpName   = regexp.MustCompile(`-tmp-\d+(\.meta)?$`)
	stepName  = regexp.MustCompile(`-(\d+)$`)
	pathLine  = regexp.MustCompile(`(?m)^model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"`)
)

// Find finds the checkpoint that a path means: a model's folder, whose file checkpoint names the newest one, or which has one alone;
// a prefix such as …/model.ckpt-1200; an exported model's folder; or a folder of tables itself. Errors: [ErrNone], which says what was
// looked for; [ErrDamaged] where shards of a table are missing.
func Find(ctx context.Context, in fsx.FS, path string) (*Checkpoint, error) {
	path = filepath.Clean(path)
	if isDir(ctx, in, path+assetsSuffix) {
		return read(ctx, in, path+assetsSuffix, path)
	}
	if prefix, ok := strings.CutSuffix(path, assetsSuffix); ok {
		return read(ctx, in, path, prefix)
	}
	entries, err := in.List(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("entrydump: %w: name a model's folder, a prefix such as model.ckpt-1200, or a folder of tables: %w", err, ErrNone)
	}
	var assets []string
	hasTables := false
	for _, e := range entries {
		switch {
		case e.Dir && strings.HasSuffix(e.Name, assetsSuffix):
			assets = append(assets, e.Name)
		case e.Dir && e.Name == "assets":
			return read(ctx, in, filepath.Join(path, e.Name), filepath.Join(path, "variables", "variables"))
		case !e.Dir && shardName.MatchString(e.Name):
			hasTables = true
		}
	}
	if named, err := newest(ctx, in, path); err != nil {
		return nil, err
	} else if named != "" {
		if isDir(ctx, in, named+assetsSuffix) {
			return read(ctx, in, named+assetsSuffix, named)
		}
		return nil, fmt.Errorf("entrydump: %s names %s, and there is no folder %s: %w", filepath.Join(path, checkpointName), named, named+assetsSuffix, ErrNone)
	}
	switch {
	case len(assets) == 1:
		return read(ctx, in, filepath.Join(path, assets[0]), filepath.Join(path, strings.TrimSuffix(assets[0], assetsSuffix)))
	case len(assets) > 1:
		return nil, fmt.Errorf("entrydump: %s has %d checkpoints (%s) and no file %s that says which is meant: name one: %w",
			path, len(assets), strings.Join(assets, ", "), checkpointName, ErrNone)
	case hasTables:
		return read(ctx, in, path, "")
	}
	return nil, fmt.Errorf("entrydump: %s has neither a file %s, nor a folder *%s or assets, nor tables (*-00000-of-00001): %w", path, checkpointName, assetsSuffix, ErrNone)
}

// newest is the prefix that the file checkpoint of a folder names, "" without one.
func newest(ctx context.Context, in fsx.FS, dir string) (string, error) {
	name := filepath.Join(dir, checkpointName)
	b, err := fsx.ReadFile(ctx, in, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("entrydump: %w", err)
	}
	m := pathLine.FindSubmatch(b)
	if m == nil {
		return "", fmt.Errorf("entrydump: %s has no line model_checkpoint_path: name the checkpoint itself, such as model.ckpt-1200: %w", name, ErrDamaged)
	}
	path, err := strconv.Unquote(`"` + string(m[1]) + `"`)
	if err != nil {
		return "", fmt.Errorf("entrydump: %s names the checkpoint %q: %w: %w", name, m[1], err, ErrDamaged)
	}
	// A folder that was copied names where it was.
	if here := filepath.Join(dir, filepath.Base(path)); !filepath.IsAbs(path) || !isDir(ctx, in, path+assetsSuffix) {
		return here, nil
	}
	return path, nil
}

func isDir(ctx context.Context, in fsx.FS, name string) bool {
	info, err := in.Stat(ctx, name)
	return err == nil && info.Dir
}

// group is the shards of one name.
type group struct {
	totals map[int]map[int]bool // of how many, which
	bytes  int64
}

// read describes a folder of tables.
func read(ctx context.Context, in fsx.FS, assets, prefix string) (*Checkpoint, error) {
	entries, err := in.List(ctx, assets)
	if err != nil {
		return nil, fmt.Errorf("entrydump: %w", err)
	}
	c := &Checkpoint{Assets: assets, Prefix: prefix, Step: -1}
	if m := stepName.FindStringSubmatch(filepath.Base(prefix)); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			c.Step = n
		}
	}
	groups := map[string]*group{}
	for _, e := range entries {
		m := shardName.FindStringSubmatch(e.Name)
		// What a writer left that was killed is no shard.
		if e.Dir || m == nil || tmpName.MatchString(m[1]) {
			c.Others = append(c.Others, e.Name)
			continue
		}
		shard, _ := strconv.Atoi(m[2]) // five digits
		total, _ := strconv.Atoi(m[3])
		g := groups[m[1]]
		if g == nil {
			g = &group{totals: map[int]map[int]bool{}}
			groups[m[1]] = g
		}
		if g.totals[total] == nil {
			g.totals[total] = map[int]bool{}
		}
		g.totals[total][shard] = true
		g.bytes += e.Size
	}
	for name, g := range groups {
		if base, ok := strings.CutSuffix(name, metaSuffix); ok && groups[base] != nil {
			continue
		}
		f := File{Name: name, Bytes: g.bytes}
		if f.Shards, err = g.whole(assets, name); err != nil {
			return nil, err
		}
		if meta := groups[name+metaSuffix]; meta != nil {
			f.Multi = true
			shards, err := meta.whole(assets, name+metaSuffix)
			if err == nil && shards != f.Shards {
				err = fmt.Errorf("entrydump: %s has %d shards and %s%s %d: %w", filepath.Join(assets, name), f.Shards, name, metaSuffix, shards, ErrDamaged)
			}
			if err != nil {
				return nil, err
			}
		}
		if strings.HasPrefix(name, filterPrefix) && !f.Multi {
			c.Filters = append(c.Filters, f)
		} else {
			c.Files = append(c.Files, f)
		}
	}
	byName := func(a, b File) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(c.Files, byName)
	slices.SortFunc(c.Filters, byName)
	return c, nil
}

// whole is the number of shards, all of which are there.
func (g *group) whole(dir, name string) (int, error) {
	if len(g.totals) > 1 {
		var all []string
		for total := range g.totals {
			all = append(all, strconv.Itoa(total))
		}
		slices.Sort(all)
		return 0, fmt.Errorf("entrydump: %s has files of %s shards: they are of several checkpoints: %w", filepath.Join(dir, name), strings.Join(all, " and of "), ErrDamaged)
	}
	for total, shards := range g.totals {
		for i := range total {
			if !shards[i] {
				return 0, fmt.Errorf("entrydump: %s is missing: it was not copied, or is still being written: %w", filepath.Join(dir, FileName(name, i, total)), ErrDamaged)
			}
		}
		if len(shards) > total {
			return 0, fmt.Errorf("entrydump: %s has %d files of %d shards: %w", filepath.Join(dir, name), len(shards), total, ErrDamaged)
		}
		return total, nil
	}
	return 0, nil
}

// FileName is the name of a shard's file.
func FileName(name string, shard, shards int) string {
	return fmt.Sprintf("%s-%05d-of-%05d", name, shard, shards)
}

// MetaName is the name of the file that says what is in it.
func MetaName(name string, shard, shards int) string { return FileName(name+metaSuffix, shard, shards) }
