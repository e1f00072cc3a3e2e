package fsx

import (
	"context"
	"path/filepath"
)

// Sub is a folder of a file system as a file system of its own, whose names are those below it.
func Sub(f FS, dir string) FS { return sub{f, dir} }

type sub struct {
	f   FS
	dir string
}

func (s sub) Open(ctx context.Context, name string) (File, error) {
	return s.f.Open(ctx, filepath.Join(s.dir, name))
}

func (s sub) Stat(ctx context.Context, name string) (Info, error) {
	return s.f.Stat(ctx, filepath.Join(s.dir, name))
}

func (s sub) Create(ctx context.Context, name string) (Writer, error) {
	return s.f.Create(ctx, filepath.Join(s.dir, name))
}

func (s sub) List(ctx context.Context, dir string) ([]Info, error) {
	return s.f.List(ctx, filepath.Join(s.dir, dir))
}

func (s sub) Remove(ctx context.Context, name string) error {
	return s.f.Remove(ctx, filepath.Join(s.dir, name))
}
