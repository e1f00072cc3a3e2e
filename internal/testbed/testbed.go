// Package testbed decides what becomes of a test that needs something the machine may not have: real servers, real data
// sets. Such a test skips with a line that says what is missing, unless the environment demands it: what MONOLITH_REQUIRE
// lists (comma-separated words: kafka, data ...) fails instead, so that a nightly run cannot go green by skipping.
package testbed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Environment variables.
const (
	// EnvRequire lists what must not be skipped.
	EnvRequire = "MONOLITH_REQUIRE"
	// EnvData is the folder that holds the data sets, one folder each.
	EnvData = "MONOLITH_DATA"
)

// TB is the part of testing.TB used here. It is declared so that a command that embeds a test bed does not link package
// testing.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Required reports whether what may not be skipped.
func Required(what string) bool {
	for w := range strings.SplitSeq(os.Getenv(EnvRequire), ",") {
		if strings.TrimSpace(w) == what {
			return true
		}
	}
	return false
}

// Require ends a test that cannot run for want of what: it fails when what is required, and otherwise skips. reason says
// what is missing and how to get it.
func Require(t TB, what, reason string) {
	t.Helper()
	if Required(what) {
		t.Fatalf("%s is required by $%s, but %s", what, EnvRequire, reason)
		return
	}
	t.Skipf("needs %s: %s", what, reason)
}

// NoBeamRace skips a test that ends a run of Beam's in-process workers while bundles are in flight, under the race detector alone: Beam's harness closes a channel then on which it may
// be sending (sdks/v2 v2.77.0, harness.go, lines 195 and 213), which the detector reports now and then.
func NoBeamRace(t TB) {
	t.Helper()
	if Race {
		t.Skipf("the race detector sees Beam's harness close a channel while it may send on it when a run ends early")
	}
}

// Data returns the folder of a data set, which the test must only read. When it is not there the test ends as
// [Require] says for «data».
func Data(t TB, name string) string {
	t.Helper()
	root := os.Getenv(EnvData)
	if root == "" {
		Require(t, "data", "$"+EnvData+" does not name the folder of data sets")
		return ""
	}
	dir := filepath.Join(root, name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		have := "nothing"
		if entries, err := os.ReadDir(root); err == nil && len(entries) > 0 {
			names := make([]string, 0, len(entries))
			for _, e := range entries {
				names = append(names, e.Name())
			}
			slices.Sort(names)
			have = strings.Join(names, ", ")
		}
		Require(t, "data", "there is no folder "+name+" in $"+EnvData+" (it holds "+have+")")
		return ""
	}
	return dir
}
