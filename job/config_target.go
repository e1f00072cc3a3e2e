package job

import (
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/monolith-go/monolith/pipeline"
)

// ForTarget makes a job that only has a source, for looking into data without a job file: a file or pattern whose
// extension tells its kind (.tfrecord, .tfrecords, .parquet, .csv, .tsv, .jsonl, .libfm, .libsvm, .txt, each but Parquet
// also with .gz), or kafka://host:port[,host:port]/topic. Errors: one that wraps pipeline.ErrConfig when the kind is not
// clear.
func ForTarget(target string) (*Config, error) {
	c := Default()
	c.Name = target
	if rest, ok := strings.CutPrefix(target, "kafka://"); ok {
		brokers, topic, _ := strings.Cut(rest, "/")
		topic, err := url.PathUnescape(topic)
		if err != nil || brokers == "" || topic == "" {
			return nil, fmt.Errorf("job: %q is not kafka://host:port/topic: %w", target, pipeline.ErrConfig)
		}
		return c, c.apply("source.kafka", "{}", map[string]string{
			"source.kafka.brokers": brokers, "source.kafka.topic": topic, "source.kafka.end": "latest",
		})
	}
	name := strings.TrimSuffix(strings.ToLower(target), ".gz")
	var kind, format string
	switch filepath.Ext(name) {
	case ".tfrecord", ".tfrecords":
		kind = "tfrecord"
	case ".parquet":
		kind = "parquet"
	case ".csv", ".tsv", ".jsonl":
		kind, format = "text", filepath.Ext(name)[1:]
	case ".libfm", ".libsvm":
		kind, format = "text", "libfm"
	case ".txt":
		kind = "text"
	default:
		return nil, fmt.Errorf("job: %q is no snapshot, no job file and no file of a known kind (.tfrecord .parquet .csv .tsv .jsonl .libfm .txt) and not kafka://host:port/topic: %w", target, pipeline.ErrConfig)
	}
	c.Parse.Format = format
	c.Parse.Header = format == "csv" || format == "tsv"
	return c, c.apply("source."+kind, "{}", map[string]string{"source." + kind + ".files": target})
}

// apply sets keys as --set flags do, the first one before the others.
func (c *Config) apply(first, text string, rest map[string]string) error {
	root := &node{kind: mappingNode}
	d := &decoder{where: map[string]Where{}}
	d.assign(root, first, text, Where{})
	for path, value := range rest {
		d.assign(root, path, value, Where{})
	}
	var src Source
	d.section(root.get("source"), reflect.ValueOf(&src).Elem(), "source")
	if len(d.faults) > 0 {
		return &ConfigError{Faults: d.faults}
	}
	c.Source = src
	return nil
}
