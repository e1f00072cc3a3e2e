package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is a change of the code that must not pass unnoticed.
type mutant struct {
	name string
	// incident is what happened, or would, without what the change takes away.
	incident string
	// test are the arguments of go test.
	test  string
	edits []edit
}

// edit replaces old, which must be in the file exactly once.
type edit struct{ file, old, new string }

// parse reads a list:
//
//	== name
//	incident: one line
//	test: arguments of go test
//	file: path
//	--- old
//	lines
//	--- new
//	lines, or none
//	---
//
// A mutant may have several edits. Lines that begin with # between mutants are comments.
func parse(text string) ([]mutant, error) {
	var out []mutant
	seen := map[string]bool{}
	var m *mutant
	var file string
	lines := strings.Split(text, "\n")
	block := func(i int, end string) (string, int, error) {
		from := i
		for ; i < len(lines); i++ {
			if lines[i] == end {
				return strings.Join(lines[from:i], "\n"), i + 1, nil
			}
		}
		return "", i, fmt.Errorf("line %d: no %q follows", from, end)
	}
	for i := 0; i < len(lines); {
		line := lines[i]
		i++
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(line, "== "):
			name := strings.TrimPrefix(line, "== ")
			if seen[name] {
				return nil, fmt.Errorf("line %d: %q is there twice", i, name)
			}
			seen[name] = true
			out = append(out, mutant{name: name})
			m, file = &out[len(out)-1], ""
		case line == "" || strings.HasPrefix(line, "#"):
		case m == nil:
			return nil, fmt.Errorf("line %d: %q before the first name", i, line)
		case key == "incident":
			m.incident = value
		case key == "test":
			m.test = value
		case key == "file":
			file = value
		case line == "--- old":
			before, next, err := block(i, "--- new")
			if err != nil {
				return nil, err
			}
			after, next, err := block(next, "---")
			if err != nil {
				return nil, err
			}
			i = next
			m.edits = append(m.edits, edit{file, before, after})
		default:
			return nil, fmt.Errorf("line %d: %q is nothing", i, line)
		}
	}
	for _, m := range out {
		if m.incident == "" || m.test == "" || len(m.edits) == 0 {
			return nil, fmt.Errorf("%s: incident, test and an edit are needed", m.name)
		}
		for _, e := range m.edits {
			if e.file == "" || e.old == "" || e.old == e.new {
				return nil, fmt.Errorf("%s: an edit needs a file, and an old text that is not the new one", m.name)
			}
		}
	}
	return out, nil
}

// in returns the file with the edit made.
func (e edit) in(text string) (string, error) {
	if n := strings.Count(text, e.old); n != 1 {
		return "", fmt.Errorf("%s has this text %d times instead of once; the entry must follow the code:\n%s", e.file, n, e.old)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

// apply makes the change below a folder. restore, which is never nil, takes it back.
func (m mutant) apply(dir string) (restore func() error, err error) {
	was := map[string][]byte{}
	restore = func() error {
		var errs []error
		for path, b := range was {
			errs = append(errs, os.WriteFile(path, b, 0o644))
		}
		return errors.Join(errs...)
	}
	for _, e := range m.edits {
		path := filepath.Join(dir, filepath.FromSlash(e.file))
		b, err := os.ReadFile(path)
		if err != nil {
			return restore, err
		}
		text, err := e.in(string(b))
		if err != nil {
			return restore, err
		}
		if was[path] == nil {
			was[path] = b
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return restore, err
		}
	}
	return restore, nil
}
