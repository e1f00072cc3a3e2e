package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/pipeline"
)

const envPrefix = "MONOLITH_"

// LoadOptions are the layers above the job file.
type LoadOptions struct {
	// Set holds key.path=value overrides, the later ones winning. A list element is key[0] or key.0. The value is written
	// as in the file; a list of plain words may be written a,b,c.
	Set []string
	// Env holds NAME=value pairs, usually os.Environ(). MONOLITH_TRAIN_BATCH sets train.batch. Variables are also where
	// secrets of the form {env: NAME} are looked up.
	Env []string
}

// Load reads a job file, puts the other layers over it and checks the whole. Errors: a [*ConfigError] with every fault
// when the job is wrong or the file is not there; an error that wraps pipeline.ErrUnavailable when the disk fails.
func Load(path string, opts LoadOptions) (*Config, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f := Fault{Where: Where{Layer: FromFile, Name: path}, Message: "no such job file"}
		f.Suggestion = nearestFile(path)
		return nil, &ConfigError{Faults: []Fault{f}}
	case err != nil:
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil, &ConfigError{Faults: []Fault{{Where: Where{Layer: FromFile, Name: path}, Message: "is a folder, not a job file"}}}
		}
		return nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
	}
	return Decode(data, path, opts)
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
	near := Nearest(filepath.Base(path), names)
	if near == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(path), near)
}

// Decode is [Load] for a job that is already in memory; name stands for the file in messages.
func Decode(data []byte, name string, opts LoadOptions) (*Config, error) {
	root, faults := parseYAML(data, Where{Layer: FromFile, Name: name})
	if root == nil || root.kind == nullNode {
		if len(faults) == 0 {
			faults = []Fault{{Where: Where{Layer: FromFile, Name: name}, Message: "is empty; a job begins with `version: 1`"}}
		}
		return nil, &ConfigError{Faults: faults}
	}
	c, err := build(root, faults, name, opts)
	if err == nil {
		c.raw = raw{Text: data, Name: name, Set: opts.Set, Env: settings(opts.Env)}
	}
	return c, err
}

// raw is what a job was made of, for another process to make it again.
type raw struct {
	Text []byte   `json:"text"`
	Name string   `json:"name"`
	Set  []string `json:"set,omitempty"`
	Env  []string `json:"env,omitempty"`
}

// settings are the variables that set keys. Others, which may hold secrets, stay where they are.
func settings(env []string) (out []string) {
	known := map[string]bool{}
	for _, k := range Keys() {
		known[k.Env] = k.Env != ""
	}
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); known[name] {
			out = append(out, kv)
		}
	}
	return out
}

// Default is a job with every default and nothing else, for programs that fill in the rest.
func Default() *Config {
	d := &decoder{where: map[string]Where{}}
	c := &Config{Version: 1, where: d.where}
	d.section(nil, reflect.ValueOf(c).Elem(), "")
	c.Version = 1
	c.derive()
	return c
}

func build(root *node, faults []Fault, name string, opts LoadOptions) (*Config, error) {
	d := &decoder{env: environ(opts.Env), where: map[string]Where{}, faults: faults}
	c := &Config{file: name, where: d.where}
	d.substitute(root, "")
	c.notes = d.overlayEnv(root, opts.Env)
	d.overlayFlags(root, opts.Set)
	d.section(root, reflect.ValueOf(c).Elem(), "")
	c.derive()
	found := slices.Clone(d.faults)
	if more, ok := errors.AsType[*ConfigError](c.Validate()); ok {
		for _, f := range more.Faults {
			if !explained(f, found) {
				d.faults = append(d.faults, f)
			}
		}
	}
	if len(d.faults) > 0 {
		return nil, &ConfigError{Faults: d.faults}
	}
	return c, nil
}

// explained tells that a check fails only because of something already reported: a value that could not be read, or a key
// that is «missing» because its name is misspelt.
func explained(f Fault, reported []Fault) bool {
	for _, r := range reported {
		if r.Path == "" && r.Message != "" {
			return true // the file could not be read to its end
		}
		if r.Path == f.Path || strings.HasPrefix(f.Path, r.Path+".") || strings.HasPrefix(r.Path, f.Path+".") || strings.HasPrefix(r.Path, f.Path+"[") {
			return true
		}
		if r.Suggestion != "" {
			parent := r.Path[:max(0, strings.LastIndexByte(r.Path, '.'))]
			if meant := join(parent, r.Suggestion); meant == f.Path || strings.HasPrefix(f.Path, meant+".") {
				return true
			}
		}
	}
	return false
}

func environ(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			out[k] = v
		}
	}
	return out
}

// overlayEnv sets every key whose variable is there, the outer ones first, and returns notes on variables that look like
// settings. Those are no faults: Kubernetes, for one, adds MONOLITH_SERVICE_HOST for a service named monolith.
func (d *decoder) overlayEnv(root *node, env []string) (notes []string) {
	known := map[string]bool{}
	var names []string
	for _, k := range Keys() {
		if k.Env == "" {
			continue
		}
		known[k.Env] = true
		names = append(names, k.Env)
		text, ok := d.env[k.Env]
		if !ok || k.Path == "version" {
			continue
		}
		at := Where{Layer: FromEnv, Name: k.Env}
		if k.Type == "secret" {
			// The variable holds the secret itself, so it becomes the place the secret is kept.
			text = "{env: " + k.Env + "}"
		}
		d.assign(root, k.Path, text, at)
	}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if near := Nearest(name, names); strings.HasPrefix(name, envPrefix) && !known[name] && !reservedEnv(name) {
			note := fmt.Sprintf("environment variable %s sets nothing", name)
			if near != "" {
				note += fmt.Sprintf("; did you mean %s?", near)
			}
			notes = append(notes, note)
		}
	}
	slices.Sort(notes)
	return notes
}

// reservedEnv lists variables of the project that are no settings of a job.
func reservedEnv(name string) bool { return name == "MONOLITH_DATA" || name == "MONOLITH_REQUIRE" }

func (d *decoder) overlayFlags(root *node, set []string) {
	for _, s := range set {
		path, text, ok := strings.Cut(s, "=")
		if path = strings.TrimSpace(path); !ok || path == "" {
			d.fault(Where{Layer: FromFlag, Name: s}, "", "wants key.path=value", "")
			continue
		}
		d.assign(root, path, text, Where{Layer: FromFlag, Name: path})
	}
}

// assign sets one key path of the tree to the value written in text, making the sections on the way. In a section whose
// keys exclude each other it replaces the choice of a lower layer.
func (d *decoder) assign(root *node, path, text string, at Where) {
	segments := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	n, t, done := root, configSchema, ""
	for _, seg := range segments {
		t = deref(t)
		if t.Kind() == reflect.Slice {
			i, err := strconv.Atoi(seg)
			if err != nil || n.kind != listNode || i < 0 || i >= len(n.items) {
				d.fault(at, done, fmt.Sprintf("has no element %q; it has %d", seg, len(n.items)), "")
				return
			}
			n, t, done = n.items[i], t.Elem(), fmt.Sprintf("%s[%d]", done, i)
			continue
		}
		if !isSection(t) {
			if n.kind != mappingNode { // a secret's env and file, an offset's partition
				*n = node{kind: mappingNode, at: at}
			}
			n, t, done = ensure(n, seg, at), reflect.TypeFor[string](), join(done, seg)
			continue
		}
		fields := fieldsOf(t)
		f, ok := findField(fields, seg)
		if !ok {
			d.unknown(entry{key: seg, at: at}, done, fieldNames(fields))
			return
		}
		if n.kind == scalarNode {
			if n = d.expand(n, t, fields, done); n == nil {
				return
			}
		}
		if n.kind != mappingNode {
			*n = node{kind: mappingNode, at: at}
		}
		if isOneOf(t) {
			n.entries = slices.DeleteFunc(n.entries, func(e entry) bool { return e.key != f.name })
		}
		key := f.name
		if f.alias != "" && n.get(f.alias) != nil {
			key = f.alias
		}
		n, t, done = ensure(n, key, at), f.typ, join(done, f.name)
	}
	value, faults := textNode(text, t, at)
	for _, f := range faults {
		f.Path = done
		d.faults = append(d.faults, f)
	}
	if value != nil {
		*n = *value
	}
}

// expand writes a short form out in place, so that a key beside it can be set.
func (d *decoder) expand(n *node, t reflect.Type, fields []field, path string) *node {
	long := d.shortForm(n, t, fields, path)
	if long == nil || long == n {
		return long
	}
	if e := long.entries[0].value; e == n {
		clone := *n
		long.entries[0].value = &clone
	}
	*n = *long
	return n
}

func ensure(n *node, key string, at Where) *node {
	if child := n.get(key); child != nil {
		return child
	}
	child := &node{at: at}
	n.set(key, child)
	return child
}

// textNode reads a value as a flag, a variable or a default writes it: words and numbers are taken as they are, lists and
// sections are YAML, and a list of words may also be written a,b,c.
func textNode(text string, t reflect.Type, at Where) (*node, []Fault) {
	t = deref(t)
	trimmed := strings.TrimSpace(text)
	composite := t.Kind() == reflect.Slice || isSection(t) || reflect.PointerTo(t).Implements(nodeDecoder)
	switch {
	case !composite, composite && t.Kind() != reflect.Slice && !strings.HasPrefix(trimmed, "{"):
		return &node{kind: scalarNode, text: text, at: at}, nil
	case t.Kind() == reflect.Slice && !isSection(t.Elem()) && !strings.HasPrefix(trimmed, "["):
		list := &node{kind: listNode, at: at}
		for item := range strings.SplitSeq(trimmed, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list.items = append(list.items, &node{kind: scalarNode, text: item, at: at})
			}
		}
		return list, nil
	}
	return parseYAML([]byte(text), at)
}
