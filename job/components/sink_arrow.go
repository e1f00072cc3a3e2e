package components

import (
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/arrowsink"
)

// ArrowSink is a folder of Arrow IPC files, each with rows of one split: SOURCE~SPLIT~POSITION.arrow. A file is visible when it is
// complete. All workers of a cluster write to one folder that they share. Short form: the folder alone.
type ArrowSink struct {
	SinkFiles `yaml:",inline"`
}

// Sink implements [component.SinkConfig].
func (a *ArrowSink) Sink(w component.Writing) (component.OutputSink, error) {
	return outputOf(arrowsink.New(a.files(w)))
}

// InFolder implements [component.FolderSink].
func (*ArrowSink) InFolder(dir string, rowsPerFile int64) component.SinkConfig {
	return &ArrowSink{inFolder(dir, rowsPerFile)}
}

// InFolder implements [component.FolderSink].
func (*ParquetSink) InFolder(dir string, rowsPerFile int64) component.SinkConfig {
	return &ParquetSink{SinkFiles: inFolder(dir, rowsPerFile)}
}

// inFolder are files that end by their rows and bytes alone.
func inFolder(dir string, rowsPerFile int64) SinkFiles {
	return SinkFiles{Dir: dir, RowsPerFile: rowsPerFile, FileEvery: conf.Duration(24 * time.Hour)}
}
