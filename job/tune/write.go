package tune

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/result"
)

// result sums up what is known.
func (s *search) result() (*result.Tuned, error) {
	st := s.state
	out := &result.Tuned{
		Job: s.cfg.Name, Dir: s.dir, Metric: s.score, Lower: s.gain(0, 1) > 0, Shown: s.shown, On: s.on, Rows: st.Rows,
		Notes: s.notes, Trials: len(st.Trials), Earlier: s.earlier, Seconds: st.Seconds, TimedOut: s.timedOut, Drained: s.drained,
		Noise: result.Scalar(math.NaN()),
	}
	for rung := range st.Rows {
		base, again := st.find(rung, 0, false), st.find(rung, 0, true)
		if base != nil {
			out.BadRows = base.BadRows
		}
		if base != nil && again != nil { // two seeds may be near by chance: the largest difference counts
			noise := math.Abs(base.Scores[s.score] - again.Scores[s.score])
			if !(noise <= float64(out.Noise)) {
				out.Noise = result.Scalar(noise)
			}
		}
	}
	s.decide(out)
	s.list(out)
	text, err := s.text(out)
	if err != nil {
		return nil, err
	}
	out.Text = text
	return out, nil
}

// decide chooses the best candidate of the highest rung in which there is a choice.
func (s *search) decide(out *result.Tuned) {
	for rung := range slices.Backward(s.state.Rows) {
		ranked := s.ranked(rung)
		base := s.state.find(rung, 0, false)
		if len(ranked) < 2 || base == nil {
			continue
		}
		best := s.state.find(rung, ranked[0], false)
		gain := s.gain(best.Scores[s.score], base.Scores[s.score])
		switch {
		case ranked[0] == 0:
		case gain > float64(out.Noise):
			out.Best, out.Gain = ranked[0], result.Scalar(gain)
		default:
			out.Near = ranked[0]
		}
		return
	}
}

// list fills in the candidates, those of the highest rung first and the best of a rung first.
func (s *search) list(out *result.Tuned) {
	place := map[int][2]int{} // rung from above, place
	for rung := range s.state.Rows {
		for i, c := range s.ranked(rung) {
			place[c] = [2]int{-rung, i}
		}
	}
	for number := range s.candidates {
		c := result.TunedCandidate{Number: number, Changes: s.candidates[number].changes}
		for _, t := range s.state.Trials {
			if t.Candidate == number && !t.OtherSeed && t.Rung+1 > c.Rung {
				c.Rung, c.Rows, c.Scores, c.Seconds, c.Lost = t.Rung+1, t.Rows, shown(t.Scores, s.shown), t.Seconds, t.Lost
			}
		}
		if _, ok := place[number]; !ok { // lost, or not tried
			place[number] = [2]int{1, 0}
			if c.Rung == 0 {
				place[number] = [2]int{2, 0}
			}
		}
		out.Candidates = append(out.Candidates, c)
	}
	slices.SortStableFunc(out.Candidates, func(a, b result.TunedCandidate) int {
		x, y := place[a.Number], place[b.Number]
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(a.Number, b.Number))
	})
}

func shown(all result.Scores, names []string) result.Scores {
	if all == nil {
		return nil
	}
	out := result.Scores{}
	for _, name := range names {
		if v, ok := all[name]; ok {
			out[name] = v
		}
	}
	return out
}

// Table is what was tried, a row for each candidate, with a heading.
func Table(r *result.Tuned) [][]string {
	head := []string{"CANDIDATE", "ROWS"}
	for _, name := range r.Shown {
		head = append(head, strings.ToUpper(strings.ReplaceAll(name, "_", " ")))
	}
	rows := [][]string{append(head, "SECONDS", "CHANGED")}
	for _, c := range r.Candidates {
		if c.Rung == 0 {
			continue
		}
		row := []string{strconv.Itoa(c.Number), count(c.Rows)}
		for _, name := range r.Shown {
			text := "-"
			if v, ok := c.Scores[name]; ok && !math.IsNaN(v) {
				text = strconv.FormatFloat(v, 'f', 5, 64)
			}
			row = append(row, text)
		}
		of := candidate{c.Changes}
		text := of.String()
		if c.Number == r.Best {
			text += "  <- best"
		}
		if c.Lost != "" {
			text += "  LOST: " + c.Lost
		}
		rows = append(rows, append(row, strconv.FormatFloat(c.Seconds, 'f', 1, 64), text))
	}
	return rows
}

// Verdict says in a sentence what came out.
func Verdict(r *result.Tuned) string {
	rows := int64(0)
	if len(r.Rows) > 0 {
		rows = r.Rows[len(r.Rows)-1]
	}
	switch {
	case r.Best > 0:
		return fmt.Sprintf("candidate %d is better by %.5f of %s than the job as it is; another seed alone makes a difference of %.5f", r.Best, float64(r.Gain), r.Metric, float64(r.Noise))
	case r.Near > 0:
		return fmt.Sprintf("no difference: candidate %d is better than the job as it is by no more than another seed is, %.5f of %s; the job is kept", r.Near, float64(r.Noise), r.Metric)
	case r.Trials == 0:
		return "nothing was tried: there was no time for one trial; raise --time or lower --rows"
	}
	return fmt.Sprintf("the job as it is was the best on %s rows", count(rows))
}

// count writes a number with commas.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// The comment at the top of a tuned job begins and ends with these.
const (
	headBegins = "# Tuned by `monolith tune`"
	headEnds   = "# End of what `monolith tune` wrote."
)

// text is the job with the best settings and the table.
func (s *search) text(r *result.Tuned) (string, error) {
	set := s.candidates[r.Best].set()
	if r.Best > 0 {
		if dir := s.ownDir(); dir != "" {
			set = append(set, "dir="+dir)
			s.notes = append(s.notes, fmt.Sprintf("the tuned job trains into %s: %s belongs to the job as it was", dir, s.cfg.Dir))
			r.Notes = s.notes
		}
	}
	body, _, err := s.cfg.Edited(s.o.Env, set)
	if err != nil {
		return "", err
	}
	return header(r) + string(withoutHeader(body)), nil
}

// ownDir is the dir that a tuned job needs, because its file names the one of the job; empty: it has
// its own, after the file's name.
func (s *search) ownDir() string {
	for _, v := range s.cfg.Effective() {
		if (v.Path == "dir" || v.Path == "name") && (v.From == "file" || v.From == "flag") {
			if fsx.IsURL(s.cfg.Dir) {
				return strings.TrimRight(s.cfg.Dir, "/") + "-tuned"
			}
			return filepath.ToSlash(filepath.Clean(s.cfg.Dir)) + "-tuned"
		}
	}
	return ""
}

// header is the comment at the top.
func header(r *result.Tuned) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight("# "+fmt.Sprintf(format, args...), " ") + "\n")
	}
	b.WriteString(headBegins + ": " + Verdict(r) + ".\n")
	if r.TimedOut {
		line("The time limit ended the search; more time may find better settings.")
	}
	line("Measured on %s.", measuredOn(r))
	table := Table(r)
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range table {
		var cells []string
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == len(row)-1 {
				cells = append(cells, cell)
			} else {
				cells = append(cells, pad+cell)
			}
		}
		line("  %s", strings.Join(cells, "  "))
	}
	b.WriteString(headEnds + "\n")
	return b.String()
}

func measuredOn(r *result.Tuned) string {
	if r.On == "progressive" {
		return "the last third of the rows trained on, each predicted before"
	}
	return "rows of " + r.On
}

// withoutHeader removes the comment of an earlier search.
func withoutHeader(text []byte) []byte {
	if !bytes.HasPrefix(text, []byte(headBegins)) {
		return text
	}
	if _, rest, ok := bytes.Cut(text, []byte(headEnds+"\n")); ok {
		return rest
	}
	return text
}
