package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/jsonlsink"
)

// JSONLSink is a folder of gzip files of JSON lines, each with rows of one split: SOURCE~SPLIT~POSITION.jsonl.gz. A row is an
// object whose members are the columns and the name of the split. A file is visible when it is complete. All workers of a cluster
// write to one folder that they share. Short form: the folder alone.
type JSONLSink struct {
	SinkFiles `yaml:",inline"`
}

// Sink implements [component.SinkConfig].
func (j *JSONLSink) Sink(w component.Writing) (component.OutputSink, error) {
	return outputOf(jsonlsink.New(j.files(w)))
}
