package components

import (
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/textsource"
)

// Text reads lines. What they hold is parse.format's.
type Text struct {
	RecordFiles `yaml:",inline"`
	// MaxLineBytes is the length above which a line is a bad row. Where a quote of csv is not closed by then, or within
	// 1,000 lines, its line is the bad row and the lines after it are read.
	MaxLineBytes conf.Size `yaml:"max_line_bytes" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*Text) Defaults() map[string]string {
	return map[string]string{"max_line_bytes": written(size(textsource.Options{}.WithDefaults().MaxLineBytes))}
}

// Formats implements [component.SourceConfig].
func (*Text) Formats() []string { return []string{"libfm", "csv", "tsv", "jsonl"} }

// UsualFormat implements [component.SourceConfig].
func (*Text) UsualFormat() string { return "" }

// Delimits implements [component.Delimited].
func (f *Text) Delimits(o component.Opening) string {
	what := "lines"
	if o.Format == "csv" {
		what = "records of csv, which may have line ends in quotes"
	}
	if o.Header {
		what += ", behind a header"
	}
	if f.Complete {
		what += ", the last one also without a line feed"
	}
	return what
}

// Counts implements [component.Delimited]. A file that is known again keeps its name, with a number behind it where that was taken.
func (f *Text) Counts(split string) bool {
	name, _, _ := strings.Cut(split, "~")
	return f.Compression == "gzip" || f.Compression == "auto" && strings.HasSuffix(name, ".gz")
}

// InOrder implements [component.OrderedFiles].
func (f *Text) InOrder(files []string) component.SourceConfig {
	ordered := *f
	ordered.FileSet = f.ordered(files)
	return &ordered
}

// Brief implements [component.Brief].
func (f *Text) Brief(rows int, _ time.Duration) component.SourceConfig {
	brief := *f
	brief.FileSet = f.brief(rows)
	return &brief
}

// OpenBlocks implements [component.Blocks].
func (f *Text) OpenBlocks(o component.Opening) (pipeline.Source[*pipeline.Block], error) {
	return textsource.New(textsource.Options{
		Files: f.Files, Known: o.Known, Seen: o.Seen, Follow: o.Follow, InOrder: f.inOrder, Complete: f.Complete, Compression: f.Compression, BlockRows: f.BlockRows, BlockBytes: int(f.BlockBytes), MaxLineBytes: int(f.MaxLineBytes),
		Header: o.Header, Quoted: o.Format == "csv", JSON: o.Format == "jsonl",
	})
}
