package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
)

// What a job is read with is package conf's.
type (
	// Key is one key of a job file, for reference pages and completion.
	Key = conf.Key
	// Setting is one value of a job and where it came from.
	Setting = conf.Setting
	// Fault is one thing that is wrong with a job.
	Fault = conf.Fault
	// Where is the place a value was set at.
	Where = conf.Where
	// Duration is a time span written with its unit: 500ms, 5m, 1h30m. 0 needs none.
	Duration = conf.Duration
	// Size is a number of bytes: 4096, 64KiB, 4MiB, 1GiB, or with powers of ten 64KB, 4MB, 1GB.
	Size = conf.Size
	// Secret names where a secret is kept; it never holds one.
	Secret = conf.Secret
)

// LoadOptions are the layers above the job file, and what it may name.
type LoadOptions struct {
	// Set holds key.path=value overrides, the later ones winning. A list element is key[0] or key.0. The value is written
	// as in the file; a list of plain words may be written a,b,c.
	Set []string
	// Flags names the command-line flag behind an element of Set that was not typed as --set:
	// Flags["runner=prism"] is "--runner". Errors about the value name this flag.
	Flags map[string]string
	// Env holds NAME=value pairs, usually os.Environ(). MONOLITH_TRAIN_BATCH sets train.batch. Variables are also where
	// secrets of the form {env: NAME} are looked up.
	Env []string
	// Components are what the job may name. Here the zero value has none; in package job it stands for those of monolith.
	Components component.Set
	// Untrained says that the job is read to evaluate its model or to write its rows: executors in other processes need no shards then.
	Untrained bool
}

func (o LoadOptions) layers() conf.Layers { return conf.Layers{Set: o.Set, Flags: o.Flags, Env: o.Env} }

// Keys lists every key of a job file in the order of the file.
func Keys(set component.Set) []Key { return schema(set).Keys() }

// ConfigError lists everything that is wrong with a job. It wraps pipeline.ErrConfig. Fix the job.
type ConfigError struct {
	Faults []Fault
}

// Error renders one fault a line.
func (e *ConfigError) Error() string { return conf.Message("job", e.Faults) }

// Unwrap makes errors.Is find pipeline.ErrConfig.
func (e *ConfigError) Unwrap() error { return pipeline.ErrConfig }

// Load reads a job file, puts the other layers over it and checks the whole. Errors: a [*ConfigError] with every fault
// when the job is wrong or the file is not there; an error that wraps pipeline.ErrUnavailable when the disk fails.
func Load(path string, opts LoadOptions) (*Config, error) {
	fault := func(message, suggestion string) error {
		return &ConfigError{Faults: []Fault{{Where: Where{Layer: conf.FromFile, Name: path}, Message: message, Suggestion: suggestion}}}
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 && !opened(path) {
		return nil, fault("is a named pipe, which would be waited for until something is written to it; name a file, or - for standard input", "")
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault("no such job file", nearestFile(path))
	case err != nil:
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil, fault("is a folder, not a job file", "")
		}
		return nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
	}
	return Decode(data, path, opts)
}

// opened reports whether a path names a file that this process has open, as /dev/stdin and a shell's <(...) do: its pipes have a writer, or an end.
func opened(path string) bool {
	path = filepath.Clean(path)
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/")
}

// nearestFile looks for a similarly named YAML file beside the one that is missing.
func nearestFile(path string) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			names = append(names, e.Name())
		}
	}
	near := nearest.Name(filepath.Base(path), names)
	if near == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(path), near)
}

// Decode is [Load] for a job that is already in memory; name stands for the file in messages.
func Decode(data []byte, name string, opts LoadOptions) (*Config, error) {
	return decode(schema(opts.Components), data, name, opts)
}

// decode is [Decode] by the schema of the components.
func decode(s *conf.Schema, data []byte, name string, opts LoadOptions) (*Config, error) {
	c := &Config{set: opts.Components, untrained: opts.Untrained, schema: s}
	places, faults := s.Decode(data, name, opts.layers(), c)
	if c.places = places; places != nil {
		c.derive()
		if more, ok := errors.AsType[*ConfigError](c.validate(s)); ok {
			faults = conf.Merge(faults, more.Faults)
		}
	}
	if len(faults) > 0 {
		return nil, &ConfigError{Faults: faults}
	}
	return c, nil
}

// With decodes the job again with further overrides, which win over those that it was loaded with. env is
// as in [LoadOptions]. An override of the job that an other key of set excludes, such as one below
// another model, is left out. Errors: as of [Decode]; a job made in Go has no text to decode.
func (c *Config) With(env, set []string) (*Config, error) {
	raw := c.Raw()
	if raw.Text == nil {
		return nil, fmt.Errorf("job: it was made in Go and has no file; load it from one: %w", pipeline.ErrConfig)
	}
	own := slices.DeleteFunc(slices.Clone(raw.Set), func(s string) bool {
		return slices.ContainsFunc(set, func(other string) bool {
			key, _, _ := strings.Cut(other, "=")
			return strings.HasPrefix(s, key+".")
		})
	})
	return decode(c.schema, raw.Text, raw.Name, LoadOptions{Set: append(own, set...), Env: env, Components: c.set, Untrained: c.untrained})
}

// Edited is the text of the job with its overrides and further keys written into it, for a file of its own.
// Comments and layout stay. The text decodes, by env, to the job that [Config.With] makes of the same
// keys, which is returned too. Errors: [conf.ErrEdit]; as of [Decode].
func (c *Config) Edited(env, set []string) (text []byte, want *Config, err error) {
	if want, err = c.With(env, set); err != nil {
		return nil, nil, err
	}
	lists := map[string]bool{}
	for _, k := range c.schema.Keys() {
		lists[k.Path] = strings.HasPrefix(k.Type, "list")
	}
	var keys []conf.KeyText
	for _, s := range want.Raw().Set {
		path, value, _ := strings.Cut(s, "=")
		path = strings.TrimSpace(path)
		keys = append(keys, conf.KeyText{Path: path, Value: asWritten(value, lists[anyElement.ReplaceAllString(path, "[]")])})
	}
	text, err = conf.Edit(c.Raw().Text, keys)
	if err != nil {
		return nil, nil, fmt.Errorf("job: %w", err)
	}
	got, err := decode(c.schema, text, c.Raw().Name, LoadOptions{Env: env, Components: c.set, Untrained: c.untrained})
	if err != nil {
		return nil, nil, fmt.Errorf("job: with %s in its file: %w: %w", strings.Join(want.Raw().Set, " "), conf.ErrEdit, err)
	}
	a, b := want.Effective(), got.Effective()
	for i := range a {
		if i >= len(b) || a[i].Path != b[i].Path || a[i].Value != b[i].Value {
			return nil, nil, fmt.Errorf("job: %s: %w; write it into the file yourself", a[i].Path, conf.ErrEdit)
		}
	}
	return text, want, nil
}

// anyElement matches the number of an element in a key path.
var anyElement = regexp.MustCompile(`\[\d+\]|\.\d+\b`)

// plain matches words and numbers that need no quotes in a file, whatever is around them.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./+][A-Za-z0-9_./+-]*$|^-?[0-9][0-9.eE+-]*$`)

// asWritten is the value of an override as a file has it.
func asWritten(value string, list bool) string {
	trimmed := strings.TrimSpace(value)
	switch {
	case strings.HasPrefix(trimmed, "{"), strings.HasPrefix(trimmed, "["):
		return trimmed
	case !list && plain.MatchString(value):
		return trimmed
	case list:
		return "[" + trimmed + "]"
	}
	return Quoted(value)
}

// Default is a job with every default and nothing else, for programs that fill in the rest.
func Default(set component.Set) *Config {
	c := &Config{set: set}
	c.places = schema(set).Default(c)
	c.Version = 1
	c.derive()
	return c
}
