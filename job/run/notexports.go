package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps/snapshot"
	serve "github.com/monolith-go/monolith/serving"
)

// notExports says what a folder has that was to be served and has no native export, and what to do; empty: that is not known.
func notExports(dir string, policy serve.Policy) string {
	const wants = "monolith export --format native writes what is served"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent, base := filepath.Split(filepath.Clean(dir))
		text := dir + " does not exist"
		if near := nearest.Name(base, foldersIn(cmp.Or(parent, "."))); near != "" {
			text += fmt.Sprintf(", did you mean %q?", parent+near)
		}
		return text
	case err != nil:
		return ""
	case !info.IsDir():
		return dir + " is a file; folders of native exports are served, and job files"
	}
	if _, err := snapshot.ReadInfo(dir); err == nil {
		return dir + " is a snapshot; " + wants
	}
	if entries, err := stored.FindSnapshots(dir); err == nil && len(entries) > 0 {
		return dir + " has snapshots; " + wants + ", and a job file is served while it is trained"
	}
	names := foldersIn(dir)
	var numbers []string
	for _, name := range names {
		if isNumber(name) {
			numbers = append(numbers, name)
		}
	}
	for _, of := range append(numbers, ".") {
		if format := formatOf(filepath.Join(dir, of)); format != "" && format != formatNative {
			return fmt.Sprintf("%s is an export as %s; %s", filepath.Join(dir, of), format, wants)
		}
	}
	if asked := policy.Specific; len(numbers) > 0 && len(asked) > 0 && !slices.ContainsFunc(asked, func(n int64) bool { return slices.Contains(numbers, strconv.FormatInt(n, 10)) }) {
		return fmt.Sprintf("%s has the versions %s, and none of %v, which are to be served", dir, strings.Join(numbers, ", "), asked)
	}
	if len(numbers) > 0 {
		return ""
	}
	for _, name := range names {
		below := filepath.Join(dir, name)
		if slices.ContainsFunc(foldersIn(below), func(number string) bool {
			return isNumber(number) && formatOf(filepath.Join(below, number)) == formatNative
		}) {
			return fmt.Sprintf("%s has the folders of several models; name each, as %q", dir, below)
		}
	}
	return ""
}

// formatOf is that of an export; empty: there is none.
func formatOf(dir string) string {
	var e struct {
		Format string `json:"format"`
	}
	b, err := os.ReadFile(filepath.Join(dir, stored.ExportFile))
	if err != nil || json.Unmarshal(b, &e) != nil {
		return ""
	}
	return e.Format
}

// foldersIn are the names of the folders in one, in order.
func foldersIn(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // then there are none to propose
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// cannotServe is the error of models that cannot be served, with what is known of their folders in place of what is missing there.
func cannotServe(configs []serve.ModelConfig, err error) error {
	if !errors.Is(err, native.ErrNone) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, native.ErrCorrupt) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	var errs []error
	for _, c := range configs {
		if text := notExports(c.Dir, c.Policy); text != "" {
			errs = append(errs, fmt.Errorf("model %s: %s", c.Name, text))
		}
	}
	return cmp.Or(errors.Join(errs...), err)
}
