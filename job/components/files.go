package components

import (
	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sources/filesource"
)

// FileSet are the options all file sources share.
type FileSet struct {
	// Files are paths or patterns (*, ?, [...]). Each file is a split, named by its path after the folder that its pattern
	// begins with, and known again by its bytes: files that are moved, renamed or appended to continue where they were. A
	// file that is both renamed and appended to, such as a rotated log, continues only in its first epoch and without
	// shuffle; otherwise it is a new file. A file that is compressed later is always a new one, and read again: leave
	// compressed files out of the patterns. Monolith compares the size and the first and last 64 KiB. It does not notice
	// bytes that change in place between them, so give changed data a new name. A pattern without a match is an error.
	// Patterns pass over names that begin with "_" or ".", as Spark and Hive do; one that begins so itself has them. A column
	// of the path (dt=2026-11-01) is not read. Sources are local files: mount or copy what lies in a store.
	Files []string `yaml:"files" required:"true"`
	// Complete says that nothing is appended to the files any more. By default a record that a file ends within counts as
	// half written: a last line without a line feed, a cut TFRecord or gzip stream, a Parquet file without its footer.
	// Reading ends in front of it with a warning, and continues there once the rest has come. JSON objects are whole
	// without a line feed. Set complete: true to read a last line without one; cut records are bad rows then.
	Complete bool `yaml:"complete"`
	// BlockRows is the number of records of a block.
	BlockRows int `yaml:"block_rows" min:"1"`

	inOrder bool // of Files
}

// Defaults implements [conf.Defaulted].
func (*FileSet) Defaults() map[string]string {
	return map[string]string{"block_rows": written(filesource.Options{}.WithDefaults().BlockRows)}
}

// FileList implements [component.Files].
func (f *FileSet) FileList() []string { return f.Files }

// LocalPaths implements [component.Local].
func (f *FileSet) LocalPaths() (out []component.LocalPath) {
	for _, file := range f.Files {
		out = append(out, component.LocalPath{Key: "files", Path: file})
	}
	return out
}

// Bounded implements [component.SourceConfig].
func (*FileSet) Bounded() bool { return true }

// ordered is the set of other files, in their order.
func (f FileSet) ordered(files []string) FileSet {
	f.Files, f.inOrder = files, true
	return f
}

// brief is the set for a sample of so many records; 0: all.
func (f FileSet) brief(rows int) FileSet {
	if rows > 0 {
		f.BlockRows = min(f.BlockRows, rows)
	}
	return f
}

// RecordFiles are the options that sources of files of records share.
type RecordFiles struct {
	FileSet `yaml:",inline"`
	// Compression is that of the files; auto goes by their first bytes.
	Compression string `yaml:"compression" enum:"auto|none|gzip"`
	// BlockBytes ends a block early.
	BlockBytes conf.Size `yaml:"block_bytes" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*RecordFiles) Defaults() map[string]string {
	o := filesource.Options{}.WithDefaults()
	return map[string]string{"compression": o.Compression, "block_bytes": written(size(o.BlockBytes))}
}
