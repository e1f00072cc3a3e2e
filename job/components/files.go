package components

// FileSet are the options all file sources share.
type FileSet struct {
	// Files are paths or patterns (*, ?, [...]). Each file is a split, named by its path after the folder that its pattern
	// begins with, and known again by its bytes: files that are moved, renamed or appended to continue where they were. A
	// pattern without a match is an error.
	Files []string `yaml:"files" required:"true"`
	// BlockRows is the number of records of a block.
	BlockRows int `yaml:"block_rows" default:"4096" min:"1"`
}

// FileList implements [component.Files].
func (f *FileSet) FileList() []string { return f.Files }

// Bounded implements [component.SourceConfig].
func (*FileSet) Bounded() bool { return true }

// brief is the set for a sample of so many records; 0: all.
func (f FileSet) brief(rows int) FileSet {
	if rows > 0 {
		f.BlockRows = min(f.BlockRows, rows)
	}
	return f
}
