//go:build unix

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/testbed"
)

// fenced is a block between ``` lines of a Markdown file.
type fenced struct {
	line int // of its first line
	lang string
	text string
}

func fencedBlocks(t *testing.T, path string) (out []fenced) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var at *fenced
	for i, line := range strings.Split(string(b), "\n") {
		switch lang, fence := strings.CutPrefix(line, "```"); {
		case fence && at == nil:
			at = &fenced{line: i + 2, lang: lang}
		case fence:
			out, at = append(out, *at), nil
		case at != nil:
			at.text += line + "\n"
		}
	}
	if at != nil {
		t.Fatalf("%s: the block at line %d has no end", path, at.line)
	}
	return out
}

// shell returns what a block of `$ command` lines has a reader type, with the lines of its here documents.
func (f fenced) shell() string {
	var b strings.Builder
	end := "" // of a here document
	for line := range strings.Lines(f.text) {
		switch {
		case end != "":
			b.WriteString(line)
			if strings.TrimSpace(line) == end {
				end = ""
			}
		case strings.HasPrefix(line, "$ "):
			b.WriteString(line[2:])
			if m := hereDocument.FindStringSubmatch(line); m != nil {
				end = m[1]
			}
		}
	}
	return b.String()
}

var hereDocument = regexp.MustCompile(`<<'?(\w+)'?`)

// tour is a reader who follows README in an empty folder that has nothing but the program and the examples.
type tour struct {
	dir     string
	replace *strings.Replacer // places of the text that are others here
}

// run types commands into one shell and returns all that they print. Every command must succeed.
func (r *tour) run(t *testing.T, commands string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -e -o pipefail -m\n"+r.replace.Replace(commands)+"\nwait\n")
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v from\n%s\n%s", errors.Join(err, ctx.Err()), commands, out)
	}
	if bytes.Contains(out, []byte("panic")) || bytes.Contains(out, []byte("goroutine ")) {
		t.Errorf("a stack trace is shown by\n%s\n%s", commands, out)
	}
	return string(out)
}

func wantAll(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

func newTour(t *testing.T) *tour {
	t.Helper()
	for _, command := range []string{"bash", "make", "timeout", "curl"} {
		if _, err := exec.LookPath(command); err != nil {
			testbed.Require(t, "posix", "the commands of README want "+command+"(1), which is not installed")
		}
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.Symlink(path, filepath.Join(dir, "bin", "monolith")))
	rooms, listErr := os.ReadDir(root)
	err = errors.Join(err, listErr)
	for _, room := range rooms {
		if name := room.Name(); name != "bin" && name != "runs" && name != "models" && (room.IsDir() || strings.HasPrefix(name, "go.")) && name[0] != '.' {
			err = errors.Join(err, os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	serving := testbed.FreeAddr(t)
	return &tour{dir: dir, replace: strings.NewReplacer(
		"serve models/cluster", "serve models/cluster --grpc '' --http "+serving, "localhost:8501", serving,
		"127.0.0.1:7000", testbed.FreeAddr(t), "127.0.0.1:7001", testbed.FreeAddr(t),
		"localhost:9092", ratingsBroker(t), `":9400"`, `"127.0.0.1:0"`,
	)}
}

// ratingsBroker has the topic that README's third part trains on.
func ratingsBroker(t *testing.T) (addr string) {
	t.Helper()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"ratings": 4}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for p := range 4 {
		var records []broker.Record
		for i := range 5000 * p { // the first partition is empty
			var e example.Encoder
			e.Int64s("user", int64(i%500))
			e.Int64s("genres", int64(i%7), int64(i%11))
			e.Floats("age", float32(18+i%60))
			e.Floats("rating", float32(1+i%5))
			records = append(records, broker.Record{Value: e.Append(nil)})
		}
		if len(records) > 0 {
			if err := broker.Produce(t.Context(), b.Addrs(), "ratings", p, broker.Batch{Size: 500}, records...); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Addrs()[0]
}

// TestReadmeTour does what README says, in its order, word by word: commands are typed, job files are written. It fails
// when README has a block that it does not know what to do with.
func TestReadmeTour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes; part of the full run")
	}
	r := newTour(t)
	demo := ""
	typed := func(words ...string) func(*testing.T, fenced) {
		return func(t *testing.T, f fenced) {
			t.Helper()
			if f.shell() == "" {
				t.Fatal("no command begins with $")
			}
			wantAll(t, r.run(t, f.shell()), words...)
		}
	}
	steps := []struct {
		begins string
		do     func(*testing.T, fenced)
	}{
		{"kafka ratings ─> parse", func(*testing.T, fenced) {}}, // a picture
		{"go run ./cmd/monolith demo ", func(t *testing.T, f fenced) { // the same as below, and all tests
			if lines := strings.Count(f.text, "\n"); lines != 2 || !strings.Contains(f.text, "\nmake test ") {
				t.Errorf("something is new here:\n%s", f.text)
			}
		}},
		{"$ make build ", func(t *testing.T, f fenced) {
			if _, rest, _ := strings.Cut(f.text, "\n"); !strings.HasPrefix(rest, "$ bin/monolith demo --dir runs/demo") {
				t.Errorf("something is new here:\n%s", f.text)
			}
			checkBuild(t)
			demo = r.run(t, "bin/monolith demo --dir runs/demo")
		}},
		{"EXAMPLES ", func(t *testing.T, f fenced) {
			head, _, _ := strings.Cut(f.text, "\n")
			wantAll(t, strings.Join(strings.Fields(demo), " "), strings.Join(strings.Fields(head), " "))
			wantAll(t, demo, "trained to the end", "the same model, frozen half way", "the best any model can do")
		}},
		{"$ bin/monolith inspect runs/demo ", typed("digest", "kafka clicks", "auc", "user")},
		{"$ export MONOLITH_DATA=", func(t *testing.T, f fenced) {
			if strings.Count(f.text, "\n") != 5 {
				t.Errorf("something is new here:\n%s", f.text)
			}
		}}, // TestRealDataReadmeTour types it
		{"$ cat > click.yaml", typed("progressive_auc", "continuing from", "runs/click16/snapshots")},
		{"$ bin/monolith inspect kafka://", typed("genres", "int64_list", "label: {name: rating")},
		{"# ratings.yaml", func(t *testing.T, f fenced) {
			if f.lang != "yaml" {
				t.Errorf("it is %q", f.lang)
			}
			if err := os.WriteFile(filepath.Join(r.dir, "ratings.yaml"), []byte(r.replace.Replace(f.text)), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"$ bin/monolith check ratings.yaml", func(t *testing.T, f fenced) {
			// Training continues until somebody presses Ctrl-C.
			endless := regexp.MustCompile(`(?m)^bin/monolith train ratings.yaml .*`)
			if len(endless.FindAllString(f.shell(), -1)) != 1 {
				t.Errorf("something is new here:\n%s", f.text)
			}
			commands := endless.ReplaceAllString(f.shell(), "timeout --preserve-status -s INT 6 bin/monolith train ratings.yaml")
			wantAll(t, r.run(t, commands), "ratings.yaml is all right", "1:0", "SIGINT: reading stops", "30,000 in", "ended by")
			wantAll(t, r.run(t, commands), "continuing from")
		}},
		{"$ cat > cluster.yaml", typed("50,000", "shards are ready")},
		{"$ bin/monolith export cluster.yaml", typed("cluster/1, native", "serving at", `{"predictions":[[0.`)},
	}
	next := 0
	for _, f := range fencedBlocks(t, "../../README.md") {
		first, _, _ := strings.Cut(f.text, "\n")
		if next == len(steps) || !strings.HasPrefix(strings.TrimLeft(f.text, " "), steps[next].begins) {
			t.Fatalf("README.md:%d: this test does not know how to run the block %q; it expects %q", f.line, first, append(stepNames(len(steps), func(i int) string { return steps[i].begins })[min(next, len(steps)):], "no more")[0])
		}
		do := steps[next].do
		next++
		if !t.Run(fmt.Sprintf("line %d", f.line), func(t *testing.T) { do(t, f) }) {
			t.Fatalf("README.md:%d: %s", f.line, first)
		}
	}
	if next != len(steps) {
		t.Errorf("README has no block that begins with %q any more", steps[next].begins)
	}
}

func stepNames(n int, name func(int) string) (out []string) {
	for i := range n {
		out = append(out, name(i))
	}
	return out
}

// checkBuild looks at what `make build` would type: it must make a static binary, with the revision in it.
func checkBuild(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", "build").Output()
	if err != nil {
		t.Fatal(err)
	}
	command := string(out)
	wantAll(t, command, "CGO_ENABLED=0", "go build", "-o bin/monolith ./cmd/monolith")
	if strings.Contains(command, "-buildvcs=false") {
		t.Errorf("the revision is left out: %s", command)
	}
}

// TestRealDataReadmeTour types README's commands for real data.
func TestRealDataReadmeTour(t *testing.T) {
	data := os.Getenv("MONOLITH_DATA")
	if data == "" {
		testbed.Require(t, "data", "MONOLITH_DATA is not set")
	}
	r := newTour(t)
	for _, f := range fencedBlocks(t, "../../README.md") {
		if strings.HasPrefix(f.text, "$ export MONOLITH_DATA=") {
			_, commands, _ := strings.Cut(f.shell(), "\n")
			wantAll(t, r.run(t, commands, "MONOLITH_DATA="+data), "is all right", "auc")
			return
		}
	}
	t.Error("README has no such block any more")
}
