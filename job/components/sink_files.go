package components

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/filesink"
)

// SinkFiles are the options that all sinks of files share.
type SinkFiles struct {
	// Dir is the folder. It is made when it is missing.
	Dir string `yaml:"dir" short:"true" required:"true"`
	// FileEvery is how long a file is written at most, so how long rows of a stream stay unseen.
	FileEvery conf.Duration `yaml:"file_every" min:"1ms"`
	// RowsPerFile is about how many rows a file has at most.
	RowsPerFile int64 `yaml:"rows_per_file" min:"1"`
	// BytesPerFile is about how large a file becomes at most.
	BytesPerFile conf.Size `yaml:"bytes_per_file" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*SinkFiles) Defaults() map[string]string {
	o := filesink.Options{}.WithDefaults()
	return map[string]string{
		"file_every": written(conf.Duration(o.FileEvery)), "rows_per_file": written(o.RowsPerFile), "bytes_per_file": written(size(o.BytesPerFile)),
	}
}

// Check implements [component.Checker].
func (f *SinkFiles) Check(report component.Report) {
	if fsx.IsURL(f.Dir) {
		report("dir", "is the URL of a store: files are written to a folder of this machine, from which other tools may copy them, or to a topic (kafka)")
	}
}

// files are the options of what is written.
func (f *SinkFiles) files(w component.Writing) filesink.Options {
	return filesink.Options{
		Dir: filepath.Join(f.Dir, w.Part), FileEvery: time.Duration(f.FileEvery), RowsPerFile: f.RowsPerFile, BytesPerFile: int64(f.BytesPerFile), Output: w.Output, Keys: w.Keys,
	}
}

// CanOpen implements [component.SinkConfig].
func (f *SinkFiles) CanOpen() (key string, err error) {
	if err := fsx.CanMake(f.Dir); err != nil {
		return "dir", fmt.Errorf("%w; name another place, or make this one one that can be written to", err)
	}
	return "", nil
}

// Place implements [component.SinkConfig]: the folder, whatever way it is written.
func (f *SinkFiles) Place() (key, place string) { return "dir", resolved(f.Dir) }

// LocalPaths implements [component.Local].
func (f *SinkFiles) LocalPaths() []component.LocalPath {
	return []component.LocalPath{{Key: "dir", Path: f.Dir, Written: true, Folder: true}}
}

// resolved is the path of a folder from the root, with symbolic links followed as far as the folders above it exist.
func resolved(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	missing := ""
	for at := dir; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, missing)
		}
		if filepath.Dir(at) == at {
			return dir
		}
		missing = filepath.Join(filepath.Base(at), missing)
	}
}

// outputOf is [component.OutputOf] of what a package of sinks makes.
func outputOf[W component.OutputWriter, S component.OpensWriter[W]](s S, err error) (component.OutputSink, error) {
	if err != nil {
		return nil, err
	}
	return component.OutputOf(component.OpensWriter[W](s)), nil
}
