package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
)

// HistoryNode is the name that positions of history are stored under, beside those of the stream.
const HistoryNode = "backfill"

// Backfill is the history of a stream: what lies in its topic, or files laid out by hour or day. docs/backfill.md describes it.
type Backfill struct {
	// Source is where history is: one of the sources of files, whose paths hold the time fields {yyyy}, {MM}, {dd} and, where they are
	// laid out by the hour, {HH}, in UTC, as in clicks/{yyyy}-{MM}-{dd}/{HH}/*.parquet. Absent: history is what the stream itself
	// still holds.
	Source *Source `yaml:"source"`
	// Format overrides parse.format for the files.
	Format string `yaml:"format" enum:"tf_example|libfm|csv|tsv|jsonl|columns"`
	// Columns names the columns of csv and tsv files. Default: parse.columns, unless header says that the files name them.
	Columns []string `yaml:"columns" blank:"true"`
	// Header is true when the first line of each csv or tsv file names the columns. Default: parse.header, or false when columns
	// names them here.
	Header *bool `yaml:"header"`
	// Epochs is how often history is read.
	Epochs int `yaml:"epochs" default:"1" min:"1"`
	// ShuffleRows is the size of the window of records that is permuted, as in shuffle.rows.
	ShuffleRows int `yaml:"shuffle_rows" default:"0" min:"-1"`
	// InOrder reads files one after another in the order of their hours or days, which one worker does. Without it all workers read
	// files at once, in no order of time. Partitions of a topic are read side by side, each in order.
	InOrder bool `yaml:"in_order" default:"true"`
	// OnMissing chooses what an hour or day without a file means: fail, or skip.
	OnMissing string `yaml:"on_missing" default:"fail" enum:"fail|skip"`
}

// The time fields of paths.
const (
	fieldYear, fieldMonth, fieldDay, fieldHour = "{yyyy}", "{MM}", "{dd}", "{HH}"
)

// Every is how much time the files of one path hold: an hour or a day.
func (b *Backfill) Every() time.Duration {
	if b.Source != nil && slices.ContainsFunc(b.Source.FileList(), func(p string) bool { return strings.Contains(p, fieldHour) }) {
		return time.Hour
	}
	return 24 * time.Hour
}

// Patterns are the paths of the hour or day that begins at a time.
func (b *Backfill) Patterns(at time.Time) []string {
	at = at.UTC()
	replace := strings.NewReplacer(fieldYear, at.Format("2006"), fieldMonth, at.Format("01"), fieldDay, at.Format("02"), fieldHour, at.Format("15"))
	out := make([]string, 0, len(b.Source.FileList()))
	for _, p := range b.Source.FileList() {
		out = append(out, replace.Replace(p))
	}
	return out
}

// Backfilling returns the job that trains on a part of history, to its end, whatever train.max_examples says. The job itself is not changed.
func (c *Config) Backfilling(past component.SourceConfig, inOrder bool) *Config {
	h, b := *c, &c.Backfill
	h.SourceName, h.Epochs, h.Train.MaxExamples = HistoryNode, b.Epochs, 0
	h.Shuffle = Shuffle{Rows: b.ShuffleRows, OneSplit: inOrder}
	name := c.Source.Name()
	if b.Source != nil {
		name, h.sourceKey = b.Source.Name(), "backfill.source"
		h.Parse.Format, h.Parse.Columns, h.Parse.Header = b.Format, b.Columns, b.Header != nil && *b.Header
	}
	if inOrder {
		h.Train.Workers = 1
	}
	h.Source = SourceOf(name, past)
	return &h
}

// backfill checks the section; without a source there is nothing that is not checked elsewhere.
func (v *validator) backfill(c *Config) {
	b := &c.Backfill
	if c.SourceName == HistoryNode {
		v.fault("source_name", "is %q, which history is stored under; choose another", HistoryNode)
	}
	if b.Source == nil {
		return
	}
	v.source(b.Source, "backfill.source", b.Format)
	if _, ok := c.Source.Value().(component.Dated); !ok && c.Source.Value() != nil {
		v.fault("backfill", "is the history of a stream whose records have times, such as kafka, and the source of this job is %s", c.Source.Name())
	}
	if b.Source.Value() == nil {
		return
	}
	path := conf.Join("backfill.source", b.Source.Name())
	if _, ok := b.Source.Value().(component.OrderedFiles); !ok {
		v.fault("backfill.source", "is %s; history is in files, or without backfill.source in the topic itself", b.Source.Name())
		return
	}
	hourly := b.Every() == time.Hour
	for i, p := range b.Source.FileList() {
		for _, field := range []string{fieldYear, fieldMonth, fieldDay, fieldHour} {
			if !strings.Contains(p, field) && (field != fieldHour || hourly) {
				v.fault(fmt.Sprintf("%s.files[%d]", path, i), "is %q, which has no %s: the files of each hour or day have a path of their own, such as clicks/{yyyy}-{MM}-{dd}/{HH}/*.parquet", p, field)
				break
			}
		}
	}
	v.linesOf("backfill", b.Source, b.Format, b.Columns, b.Header)
	if h := c.Eval.Holdout; h != nil && h.By == "" {
		v.fault("eval.holdout.by", "is missing: without a column examples are drawn by their places, which are others in the files of backfill.source than in the stream, so an example of both would be trained on in the one and held out in the other; name a column that both have, such as the user, or an id of the example")
	}
}
