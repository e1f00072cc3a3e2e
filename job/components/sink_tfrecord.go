package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/tfrecordsink"
)

// TFRecordSink is a folder of gzip files of TFRecords, each with rows of one split: SOURCE~SPLIT~POSITION.tfrecord.gz. A record is a
// tf.Example with a feature for each column. A file is visible when it is complete. All workers of a cluster write to one folder that
// they share. Short form: the folder alone.
type TFRecordSink struct {
	SinkFiles `yaml:",inline"`
}

// Sink implements [component.SinkConfig].
func (t *TFRecordSink) Sink(w component.Writing) (component.OutputSink, error) {
	return outputOf(tfrecordsink.New(t.files(w)))
}
