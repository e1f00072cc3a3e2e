package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/tsvsink"
)

// TSVSink is a folder of gzip files of lines with fields between delimiters, each with rows of one split:
// SOURCE~SPLIT~POSITION.tsv.gz, or .csv.gz where the delimiter is a comma. Text that has the delimiter, a double quote or a line end is
// quoted as in RFC 4180; what is missing is empty. A file is visible when it is complete. All workers of a cluster write to one folder
// that they share. Short form: the folder alone.
type TSVSink struct {
	SinkFiles `yaml:",inline"`
	// Delimiter is the one byte between fields.
	Delimiter string `yaml:"delimiter"`
	// ListDelimiter is the one byte between the numbers of a list.
	ListDelimiter string `yaml:"list_delimiter"`
	// Header makes the first line of each file name the columns.
	Header bool `yaml:"header" default:"true"`
}

// Defaults implements [conf.Defaulted].
func (*TSVSink) Defaults() map[string]string {
	o := tsvsink.Options{}.WithDefaults()
	return map[string]string{"delimiter": o.Delimiter, "list_delimiter": o.ListDelimiter}
}

// Check implements [component.Checker].
func (s *TSVSink) Check(report component.Report) {
	s.SinkFiles.Check(report)
	s.options(component.Writing{}).Check(report)
}

func (s *TSVSink) options(w component.Writing) tsvsink.Options {
	return tsvsink.Options{Options: s.files(w), Delimiter: s.Delimiter, ListDelimiter: s.ListDelimiter, NoHeader: !s.Header}
}

// Sink implements [component.SinkConfig].
func (s *TSVSink) Sink(w component.Writing) (component.OutputSink, error) {
	return outputOf(tsvsink.New(s.options(w)))
}
