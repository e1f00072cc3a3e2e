package snapshot

import (
	"context"
	"errors"
	"io/fs"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Snapshots are kept in an [fsx.FS], of which nothing but whole files is needed: one is there, whole and durable, when it is
// committed, and the manifest last. What is under way is not given up: who gives up does so between two files.

// disk returns a file system, that of this machine for nil.
func disk(f fsx.FS) fsx.FS {
	if f == nil {
		return fsx.Local{}
	}
	return f
}

// names returns the names in a folder, sorted. One that is not there has none.
func names(f fsx.FS, dir string) ([]string, error) {
	infos, err := f.List(context.Background(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := make([]string, len(infos))
	for i, info := range infos {
		out[i] = info.Name
	}
	return out, nil
}

// remove removes a file, or all that lies below a folder. What is not there is no error.
func remove(f fsx.FS, name string) error { return fsx.RemoveAll(context.Background(), f, name) }

// put writes a whole file.
func put(f fsx.FS, name string, b []byte) error {
	return fsx.WriteFile(context.Background(), f, name, b)
}

// get reads a whole file of at most limit bytes.
func get(f fsx.FS, name string, limit int64) ([]byte, error) {
	return fsx.ReadFile(context.Background(), f, name, limit)
}
