package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// cell is one training run: what is trained on what, and how.
type cell struct {
	set, model string
	seed       uint64
	// batch and workers are 0 for what has none, such as a constant. batch may be [ownBatch].
	batch, workers, passes int
	// settings are the job's others: -set and -all-rows.
	settings string
}

// ownBatch is the batch size of init's job; PyTorch takes 512 then.
const ownBatch = -1

// result is what a run came to.
type result struct {
	// passes are the scores on the validation after each pass, kept those of the snapshot that `monolith eval` takes.
	passes []score
	kept   score
	// first, last and life are scores of the first pass, of predictions made before a row was learnt: of the first
	// 65,536 rows, the last 65,536 and all.
	first, last, life score
	// rows is how many examples were trained, in all passes.
	rows    int64
	seconds float64
	// failed says why there is nothing else; empty: there is.
	failed string
}

// fields are the columns of a file of results.
var fields = []string{
	"set", "model", "seed", "batch", "workers", "passes", "settings",
	"auc", "log_loss", "kept_auc", "kept_log_loss", "first_auc", "first_log_loss", "last_auc", "last_log_loss", "life_auc", "life_log_loss",
	"rows", "seconds", "failed",
}

func (c cell) String() string {
	s := fmt.Sprintf("%s %s seed %d", c.set, c.model, c.seed)
	if c.batch > 0 {
		s += fmt.Sprintf(" batch %d", c.batch)
	}
	if c.workers > 1 {
		s += fmt.Sprintf(" workers %d", c.workers)
	}
	return s
}

// line is a cell with its result as a line of a file, without its end.
func line(c cell, r result) string {
	var auc, logLoss []string
	for _, s := range r.passes {
		auc, logLoss = append(auc, digits(s.auc)), append(logLoss, digits(s.logLoss))
	}
	out := []string{c.set, c.model, fmt.Sprint(c.seed), fmt.Sprint(c.batch), fmt.Sprint(c.workers), fmt.Sprint(c.passes), c.settings, strings.Join(auc, ","), strings.Join(logLoss, ",")}
	for _, s := range []score{r.kept, r.first, r.last, r.life} {
		out = append(out, digits(s.auc), digits(s.logLoss))
	}
	return strings.Join(append(out, fmt.Sprint(r.rows), strconv.FormatFloat(r.seconds, 'f', 1, 64), oneLine(r.failed)), "\t")
}

func digits(x float64) string { return strconv.FormatFloat(x, 'f', 6, 64) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// readLine reads what [line] writes.
func readLine(s string) (c cell, r result, err error) {
	f := strings.Split(s, "\t")
	if len(f) != len(fields) {
		return c, r, fmt.Errorf("%d fields, want %d", len(f), len(fields))
	}
	var errs []error
	whole := func(s string) int {
		n, err := strconv.Atoi(s)
		errs = append(errs, err)
		return n
	}
	real := func(s string) float64 {
		x, err := strconv.ParseFloat(s, 64)
		errs = append(errs, err)
		return x
	}
	c = cell{set: f[0], model: f[1], seed: uint64(whole(f[2])), batch: whole(f[3]), workers: whole(f[4]), passes: whole(f[5]), settings: f[6]}
	if f[7] != "" {
		auc, logLoss := strings.Split(f[7], ","), strings.Split(f[8], ",")
		if len(auc) != len(logLoss) {
			return c, r, fmt.Errorf("%d AUCs, but %d log losses", len(auc), len(logLoss))
		}
		for i := range auc {
			r.passes = append(r.passes, score{real(auc[i]), real(logLoss[i])})
		}
	}
	for i, to := range []*score{&r.kept, &r.first, &r.last, &r.life} {
		*to = score{real(f[9+2*i]), real(f[10+2*i])}
	}
	r.rows, r.seconds, r.failed = int64(whole(f[17])), real(f[18]), f[19]
	return c, r, errors.Join(errs...)
}

// readResults reads a file of results; none where it is not there. Of a cell that is there more than once the last
// counts. A last line without an end was cut off by a kill, and does not count.
func readResults(path string) (map[cell]result, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	found := map[cell]result{}
	for n, l := range strings.SplitAfter(string(text), "\n") {
		if n == 0 || !strings.HasSuffix(l, "\n") {
			continue
		}
		c, r, err := readLine(strings.TrimSuffix(l, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w; name another file by -out, or remove the line", path, n+1, err)
		}
		found[c] = r
	}
	return found, err
}

// appendTo opens a file of results for more lines. It writes the heading where there is none, and removes a last line
// without an end.
func appendTo(path string) (write func(cell, result) error, done func() error, err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	err = f.Truncate(int64(whole))
	put := func(s string) error {
		_, err := f.WriteString(s + "\n")
		return err
	}
	if whole == 0 && err == nil {
		err = put(strings.Join(fields, "\t"))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return func(c cell, r result) error { return put(line(c, r)) }, f.Close, nil
}
