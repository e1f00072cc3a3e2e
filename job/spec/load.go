package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	c := &Config{set: opts.Components, untrained: opts.Untrained}
	s := schema(opts.Components)
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

// Default is a job with every default and nothing else, for programs that fill in the rest.
func Default(set component.Set) *Config {
	c := &Config{set: set}
	c.places = schema(set).Default(c)
	c.Version = 1
	c.derive()
	return c
}
