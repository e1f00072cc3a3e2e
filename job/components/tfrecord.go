package components

import (
	"bytes"
	"errors"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/tfrecordsource"
)

// TFRecord reads TFRecord files and checks both checksums of each record.
type TFRecord struct {
	RecordFiles `yaml:",inline"`
	// MaxRecordBytes is the size above which a record is a bad row.
	MaxRecordBytes conf.Size `yaml:"max_record_bytes" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*TFRecord) Defaults() map[string]string {
	return map[string]string{"max_record_bytes": written(size(tfrecordsource.Options{}.WithDefaults().MaxRecordBytes))}
}

// Formats implements [component.SourceConfig].
func (*TFRecord) Formats() []string { return []string{"tf_example", "jsonl"} }

// UsualFormat implements [component.SourceConfig].
func (*TFRecord) UsualFormat() string { return "tf_example" }

// InOrder implements [component.OrderedFiles].
func (f *TFRecord) InOrder(files []string) component.SourceConfig {
	ordered := *f
	ordered.FileSet = f.ordered(files)
	return &ordered
}

// Brief implements [component.Brief].
func (f *TFRecord) Brief(rows int, _ time.Duration) component.SourceConfig {
	brief := *f
	brief.FileSet = f.brief(rows)
	return &brief
}

// OpenBlocks implements [component.Blocks].
func (f *TFRecord) OpenBlocks(o component.Opening) (pipeline.Source[*pipeline.Block], error) {
	return tfrecordsource.New(tfrecordsource.Options{
		Files: f.Files, Known: o.Known, Seen: o.Seen, Follow: o.Follow, InOrder: f.inOrder, Complete: f.Complete, Compression: f.Compression, BlockRows: f.BlockRows, BlockBytes: int(f.BlockBytes), MaxRecordBytes: int64(f.MaxRecordBytes),
	})
}

// isTFRecord recognises a file by its first record's checksums, or by its name.
func isTFRecord(head []byte, extension string) (ok, sure bool) {
	if len(head) >= 12 {
		_, err := tfrecord.NewReader(bytes.NewReader(head), nil).Next()
		if corrupt, ok := errors.AsType[*tfrecord.CorruptError](err); err == nil || ok && corrupt.Reason != tfrecord.ReasonLength {
			return true, true
		}
	}
	return extension == ".tfrecord" || extension == ".tfrecords", false
}
