package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Peers are other programs on the same rows, with their own defaults but for what a user has to say: the model and the
// number of passes. They have no way to scale numbers: these reach them as log1p, less the mean and over the
// deviation of the training rows. An id that training does not have is left out.
var peers = []struct{ name, program, kind string }{
	{"xlearn-lr", "xlearn", "0"},
	{"xlearn-fm", "xlearn", "1"},
	{"xlearn-ffm", "xlearn", "2"},
	{"torch-lr", "torch", "lr"},
	{"torch-fm", "torch", "fm"},
	{"torch-deepfm", "torch", "deepfm"},
}

// programs are the peers' programs: what is looked for on PATH, and how to install it.
var programs = map[string]struct{ file, install string }{
	"xlearn": {"xlearn_train", "run pip download --no-deps --no-binary :all: xlearn==0.40a1, build xlearn_train and xlearn_predict in its folder compile with cmake -DCMAKE_POLICY_VERSION_MINIMUM=3.5 and make, and name the first by -with xlearn=FILE"},
	"torch":  {"python3", "run pip install numpy torch in a virtual environment, and name its Python by -with torch=FILE"},
}

//go:embed theirs/defaults_torch.py
var torchScript []byte

// find returns where a peer's program is, or why it is not there and how to install it.
func find(ctx context.Context, program string, with map[string]string) (path string, err error) {
	p := programs[program]
	path, err = exec.LookPath(p.file)
	if named, ok := with[program]; ok {
		path, err = exec.LookPath(named)
	}
	if err == nil && program == "torch" {
		var out []byte
		if out, err = exec.CommandContext(ctx, path, "-c", "import numpy, torch").CombinedOutput(); err != nil {
			told := strings.Split(strings.TrimSpace(string(out)), "\n")
			err = errors.New(told[len(told)-1])
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w; to have it, %s", err, p.install)
	}
	return path, nil
}

// entry is a value of a row, as peers read it: its column, its number among all ids and its weight.
type entry struct {
	field, index int
	value        float64
}

// encoder makes entries of cells by what the training rows hold.
type encoder struct {
	columns         []column
	index           map[string]int // by column and id; from 1
	mean, deviation []float64      // of numbers
}

func newEncoder(d *data) *encoder {
	e := &encoder{columns: d.columns, index: map[string]int{}, mean: make([]float64, len(d.columns)), deviation: make([]float64, len(d.columns))}
	for c, column := range d.columns {
		sum, squares, n := 0., 0., 0.
		add := func(value string) {
			if key := keyOf(c, value); e.index[key] == 0 {
				e.index[key] = len(e.index) + 1
			}
		}
		if column.kind == numberColumn {
			add("")
		}
		for _, r := range d.train {
			if column.kind != numberColumn {
				for _, id := range idsIn(column, r.cells[c]) {
					add(id)
				}
			} else if x, ok := scaled(r.cells[c]); ok {
				sum, squares, n = sum+x, squares+x*x, n+1
			}
		}
		e.mean[c] = sum / max(n, 1)
		e.deviation[c] = max(math.Sqrt(max(squares/max(n, 1)-e.mean[c]*e.mean[c], 0)), 1e-6)
	}
	return e
}

func keyOf(column int, id string) string { return strconv.Itoa(column) + " " + id }

// idsIn are the ids of a cell.
func idsIn(c column, cell string) []string {
	switch {
	case cell == "":
		return nil
	case c.kind == listColumn:
		return strings.Split(cell, "|")
	}
	return []string{cell}
}

// scaled is the logarithm of a number, with its sign; false: there is none.
func scaled(cell string) (float64, bool) {
	x, err := strconv.ParseFloat(cell, 64)
	if err != nil {
		return 0, false
	}
	return math.Copysign(math.Log1p(math.Abs(x)), x), true
}

// row are the entries of a row. Those of a list have a weight of 1 together.
func (e *encoder) row(r row) (out []entry) {
	for c, column := range e.columns {
		if column.kind == numberColumn {
			if x, ok := scaled(r.cells[c]); ok {
				out = append(out, entry{c, e.index[keyOf(c, "")], (x - e.mean[c]) / e.deviation[c]})
			}
			continue
		}
		ids := idsIn(column, r.cells[c])
		for _, id := range ids {
			if k := e.index[keyOf(c, id)]; k > 0 {
				out = append(out, entry{c, k, 1 / float64(len(ids))})
			}
		}
	}
	return out
}

// write writes rows as libffm, or without fields as libsvm.
func (e *encoder) write(path string, rows []row, fields bool) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, line := bufio.NewWriter(f), []byte(nil)
	for _, r := range rows {
		line = strconv.AppendInt(line[:0], int64(bit(r.positive)), 10)
		for _, x := range e.row(r) {
			line = append(line, ' ')
			if fields {
				line = append(strconv.AppendInt(line, int64(x.field), 10), ':')
			}
			line = append(strconv.AppendInt(line, int64(x.index), 10), ':')
			line = strconv.AppendFloat(line, x.value, 'g', 6, 64)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}

// runPeer trains a peer on a set's rows, in files below dir, and scores what it predicts.
func runPeer(ctx context.Context, path, program, kind string, c cell, d *data, dir string) (r result, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return r, err
	}
	e := newEncoder(d)
	fields := program == "torch" || kind == "2"
	train, valid := filepath.Join(dir, "train.libffm"), filepath.Join(dir, "valid.libffm")
	if err := errors.Join(e.write(train, d.train, fields), e.write(valid, d.valid, fields)); err != nil {
		return r, err
	}
	nothing := score{math.NaN(), math.NaN()}
	r = result{first: nothing, last: nothing, life: nothing, rows: int64(c.passes * len(d.train))}
	predicted := func(pass int) string { return filepath.Join(dir, fmt.Sprintf("valid.%d.txt", pass)) }
	if program == "torch" {
		batch := c.batch
		if batch == ownBatch {
			batch = 512
		}
		script := filepath.Join(dir, "defaults_torch.py")
		if err := os.WriteFile(script, torchScript, 0o600); err != nil {
			return r, err
		}
		if err := execute(ctx, dir, path, script, kind, dir, strconv.Itoa(batch), strconv.FormatUint(c.seed, 10), strconv.Itoa(c.passes)); err != nil {
			return r, err
		}
		p, err := readPredictions(filepath.Join(dir, "seen.txt"), d.train)
		if err != nil {
			return r, err
		}
		r.first, r.last, r.life = p.scores()
	}
	for pass := 1; pass <= c.passes; pass++ {
		if program == "xlearn" { // starts over for each number of passes: what it reports of one is no prediction
			model := filepath.Join(dir, "model")
			log := filepath.Join(dir, "log")
			if err := errors.Join(
				execute(ctx, dir, path, train, "-s", kind, "-e", strconv.Itoa(pass), "-m", model, "-l", log),
				execute(ctx, dir, filepath.Join(filepath.Dir(path), "xlearn_predict"), valid, model, "-o", predicted(pass), "--sigmoid", "-l", log),
			); err != nil {
				return r, err
			}
		}
		p, err := readPredictions(predicted(pass), d.valid)
		if err != nil {
			return r, err
		}
		r.passes = append(r.passes, scoreOf(p.probabilities, p.labels))
	}
	r.kept = r.passes[len(r.passes)-1]
	return r, nil
}

// execute runs a program in a folder, and returns what it says last where it fails.
func execute(ctx context.Context, dir, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "USER=bench", "OMP_WAIT_POLICY=passive") // xLearn ends without a user; PyTorch's threads spin where others compute
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		told := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", path, err, told[len(told)-1])
	}
	return nil
}

// readPredictions reads a file with a probability for each row.
func readPredictions(path string, rows []row) (p predictions, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	p.labels = labels(rows)
	for word := range strings.FieldsSeq(string(text)) {
		x, err := strconv.ParseFloat(word, 32)
		if err != nil {
			return p, fmt.Errorf("%s: %w", path, err)
		}
		p.probabilities = append(p.probabilities, float32(x))
	}
	if len(p.probabilities) != len(rows) {
		return p, fmt.Errorf("%s has %d predictions for %d rows", path, len(p.probabilities), len(rows))
	}
	return p, nil
}
