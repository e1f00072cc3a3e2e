package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestListFollowsTheCode: every text of the list is in the code, once.
func TestListFollowsTheCode(t *testing.T) {
	t.Parallel()
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		for _, e := range m.edits {
			b, err := os.ReadFile(filepath.Join("..", "..", e.file))
			if err == nil {
				_, err = e.in(string(b))
			}
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

func TestParseFaults(t *testing.T) {
	t.Parallel()
	const ok = "== a\nincident: i\ntest: ./x\nfile: f\n--- old\nx\n--- new\n---\n"
	if all, err := parse("# c\n" + ok); err != nil || len(all) != 1 || all[0].edits[0] != (edit{"f", "x", ""}) {
		t.Errorf("%+v, %v", all, err)
	}
	for name, text := range map[string]string{
		"twice": ok + ok, "no end": strings.TrimSuffix(ok, "---\n"), "no new": strings.Replace(ok, "--- new\n", "", 1),
		"no test": strings.Replace(ok, "test: ./x\n", "", 1), "no change": strings.Replace(ok, "--- new\n", "--- new\nx\n", 1),
		"nothing": ok + "so\n", "before": "so\n" + ok,
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestTry runs the tool over a module of its own.
func TestTry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.24\n",
		"m.go":   "package m\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Unused() int { return 1 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n\n" +
			"func TestBad(t *testing.T) { t.Error(\"always\") }\n\n" + "func TestEndless(t *testing.T) { select {} }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &runner{out: os.Stderr, dir: dir, limit: 5 * time.Minute, clean: map[string]cleanRun{}}
	for _, x := range []struct {
		name     string
		old, new string
		test     string
		noticed  string
		fault    string
	}{
		{"noticed", "a + b", "a - b", "-run TestAdd .", "TestAdd", ""},
		{"survives", "return 1", "return 2", "-run TestAdd .", "", ""},
		{"hangs", "return a + b", "for {\n\t}", "-run TestAdd .", "", ""},
		{"does not compile", "a + b", "a +", "-run TestAdd .", "", "does not compile"},
		{"is not there", "a * b", "a", "-run TestAdd .", "", "0 times"},
		{"fails anyway", "a + b", "a - b", "-run TestBad .", "", "without any change, go test -run TestBad .: exit status 1: TestBad:\n"},
		{"never ends anyway", "a + b", "a - b", "-run TestEndless .", "", "have not ended within 4s"},
		{"no such test", "a + b", "a - b", "-run TestNone .", "", "no test ran"},
	} {
		r.limit = 5 * time.Minute
		switch x.name {
		case "hangs":
			r.limit = 3 * time.Second
			x.noticed = "noticed"
		case "never ends anyway":
			r.limit = time.Second
		}
		m := mutant{name: x.name, incident: "i", test: x.test, edits: []edit{{"m.go", x.old, x.new}}}
		noticed, err := r.try(context.WithoutCancel(t.Context()), m)
		if x.fault != "" && (err == nil || !strings.Contains(err.Error(), x.fault)) || x.fault == "" && err != nil {
			t.Errorf("%s: %v, want %q", x.name, err, x.fault)
		}
		if !strings.Contains(noticed, x.noticed) || x.noticed == "" && noticed != "" {
			t.Errorf("%s: %q, want %q", x.name, noticed, x.noticed)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "m.go")); err != nil || !strings.Contains(string(b), "return a + b") || !strings.Contains(string(b), "return 1") {
			t.Fatalf("%s: the change was not taken back: %v\n%s", x.name, err, b)
		}
	}
}

// TestSlowIsNotHanging: tests that take long without a change have longer with it.
func TestSlowIsNotHanging(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{time.Second: 4 * time.Minute, time.Minute: 4 * time.Minute, 3 * time.Minute: 12 * time.Minute} {
		if got := (cleanRun{took: took}).limitOf(4 * time.Minute); got != want {
			t.Errorf("%s after %s, want %s", got, took, want)
		}
	}
}
