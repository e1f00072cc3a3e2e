package jobbench

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
)

// Programs that the benchmark compares with, and what they are looked for as on PATH.
var programs = map[string]string{"torch": "python3", "tensorflow": "python3", "onnxruntime": "python3", "xlearn": "xlearn_train"}

//go:embed theirs
var theirs embed.FS

// rival trains a shape's model with another program.
type rival struct {
	name    string // in results where it is absent
	program string // key of programs
	script  string // of theirs, for an interpreter
	args    []string
	check   func(value float64) error // of the third number of an answer; nil: any is right
}

func rivals(s shape) []rival {
	if s.model != deep {
		return []rival{{name: "xlearn", program: "xlearn"}}
	}
	torch := func(mode string) rival {
		return rival{name: "torch " + mode, program: "torch", script: "deepfm_torch.py", args: []string{mode}}
	}
	if s.train == bf16 {
		return []rival{torch("bf16")}
	}
	return []rival{torch("eager"), torch("compiled"), torch("torchrec"), {name: "tensorflow", program: "tensorflow", script: "deepfm_tensorflow.py"}}
}

// absentError says why a program that nobody named is left out.
type absentError struct{ reason string }

func (e *absentError) Error() string { return e.reason }

// start returns the rival as a candidate, and what ends it. Errors: *absentError; others where the program was named by the user.
func (v rival) start(ctx context.Context, o bench.Options, data string, s shape) (c bench.Candidate, stop func(), err error) {
	if v.script == "" {
		path, _, err := v.find(o)
		if err != nil {
			return c, nil, err
		}
		return v.xlearn(ctx, path, data, s), func() {}, nil
	}
	v.args = append([]string{strconv.Itoa(s.batch), strconv.Itoa(s.cores())}, v.args...)
	return v.startScript(ctx, o, data, s.epochs*s.rows)
}

// find is where the program is, and whether the user said so. Errors: *absentError.
func (v rival) find(o bench.Options) (path string, named bool, err error) {
	path, named = o.With[v.program]
	if !named {
		if path, err = exec.LookPath(programs[v.program]); err != nil {
			return "", false, &absentError{fmt.Sprintf("%s is not on PATH; name it with --with %s=FILE", programs[v.program], v.program)}
		}
	}
	return path, named, nil
}

// startScript starts a rival that has a script, which is asked for so much work at a time.
func (v rival) startScript(ctx context.Context, o bench.Options, data string, work int) (c bench.Candidate, stop func(), err error) {
	path, named, err := v.find(o)
	if err != nil {
		return c, nil, err
	}
	c, stop, err = v.interpreted(ctx, path, data, work)
	if why, ok := errors.AsType[*absentError](err); ok && named && !strings.HasPrefix(v.name, "torch torchrec") {
		err = fmt.Errorf("--with %s=%s: %s", v.program, path, why.reason)
	}
	return c, stop, err
}

// interpreted starts a script of theirs, which says on a line that it is ready, under which name, or why not; then it answers each number of
// examples with how many it trained on, in how many seconds, and the last loss; one that predicts each number of requests with these, and a prediction.
func (v rival) interpreted(ctx context.Context, python, data string, wanted int) (c bench.Candidate, stop func(), err error) {
	text, err := theirs.ReadFile("theirs/" + v.script)
	if err != nil {
		return c, nil, err
	}
	script := filepath.Join(data, v.script)
	if err := os.WriteFile(script, text, 0o600); err != nil {
		return c, nil, err
	}
	cmd := exec.CommandContext(ctx, python, append([]string{script, data}, v.args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return c, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return c, nil, err
	}
	if err := cmd.Start(); err != nil {
		return c, nil, &absentError{err.Error()}
	}
	stop = func() {
		_ = in.Close() // at the end of its input it stops by itself
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // it has been measured, or its error returned
	}
	lines := bufio.NewScanner(out)
	read := func() (string, error) {
		if lines.Scan() {
			return lines.Text(), nil
		}
		_ = cmd.Wait() // then stderr is complete
		told := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("%s %s ended: %s", python, v.script, told[len(told)-1])
	}
	for {
		line, err := read()
		if err != nil {
			stop()
			return c, nil, &absentError{err.Error()}
		}
		if reason, ok := strings.CutPrefix(line, "absent "); ok {
			stop()
			return c, nil, &absentError{fmt.Sprintf("%s (%s)", reason, python)}
		}
		if name, ok := strings.CutPrefix(line, "ready "); ok {
			c.Name = strings.TrimSpace(name)
			break
		}
	}
	c.Timed = func() (work, seconds float64, err error) {
		_, _ = fmt.Fprintln(in, wanted) // where it has ended, reading says why
		line, err := read()
		if err != nil {
			return 0, 0, err
		}
		var value float64
		if _, err := fmt.Sscan(line, &work, &seconds, &value); err != nil || !(value < 10) { // also not a number
			return 0, 0, fmt.Errorf("%s %s answered %q", python, v.script, line)
		}
		if v.check != nil {
			return work, seconds, v.check(value)
		}
		return work, seconds, nil
	}
	return c, stop, nil
}

// epoch is a line of xLearn's about one: its number, the loss, and the seconds that it took.
var epoch = regexp.MustCompile(`(?m)^(?:\[[^]]*\])?\s*\d+\s+[\d.]+\s+([\d.]+)\s*$`)

// xlearn trains by the program's defaults (AdaGrad, without locks). It reads the rows before its first epoch, which does not count.
func (v rival) xlearn(ctx context.Context, path, data string, s shape) bench.Candidate {
	kind := "0"
	if strings.HasPrefix(s.model, "{fm") {
		kind = "1"
	}
	return bench.Candidate{Name: "xlearn", Timed: func() (work, seconds float64, err error) {
		cmd := exec.CommandContext(ctx, path, filepath.Join(data, "rows.libsvm"), "-s", kind, "-k", "16", "-nthread", strconv.Itoa(s.cores()),
			"-e", strconv.Itoa(1+max(s.epochs, 3)), "-m", "none", "-l", filepath.Join(data, "xlearn.log"))
		cmd.Env = append(os.Environ(), "USER=bench") // it needs one
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, 0, fmt.Errorf("%w: %.300s", err, out)
		}
		plain := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAll(out, nil)
		for i, m := range epoch.FindAllSubmatch(plain, -1) {
			took, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				return 0, 0, err
			}
			if i > 0 {
				work, seconds = work+float64(s.rows), seconds+took
			}
		}
		if seconds == 0 || math.IsNaN(seconds) {
			return 0, 0, fmt.Errorf("%s printed no epochs: %.300s", path, plain)
		}
		return work, seconds, nil
	}}
}
