package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// By how much a model may fall short of logistic regression.
const (
	aucBelow       = .002
	aucBelowLinear = .005 // where the truth is linear
	lossAbove      = .005
	peerAbove      = .003 // init's job and the best peer
)

// means are the means over seeds of what a model came to.
type means struct {
	passes                  []score
	kept, first, last, life score
	seeds                   int
	failed                  string
}

// meansOf are the means of results. Of passes those count that all have.
func meansOf(results []result) (m means) {
	for _, r := range results {
		if r.failed != "" {
			m.failed = r.failed
			return m
		}
		if m.seeds++; m.seeds == 1 {
			m.passes = slices.Clone(r.passes)
		} else {
			m.passes = m.passes[:min(len(m.passes), len(r.passes))]
			for i := range m.passes {
				m.passes[i] = m.passes[i].plus(r.passes[i], 1)
			}
		}
		m.kept, m.first, m.last, m.life = m.kept.plus(r.kept, 1), m.first.plus(r.first, 1), m.last.plus(r.last, 1), m.life.plus(r.life, 1)
	}
	share := 1 / float64(m.seeds)
	for _, s := range []*score{&m.kept, &m.first, &m.last, &m.life} {
		*s = score{}.plus(*s, share)
	}
	for i := range m.passes {
		m.passes[i] = score{}.plus(m.passes[i], share)
	}
	return m
}

// plus adds so many times another score.
func (s score) plus(t score, times float64) score {
	return score{s.auc + times*t.auc, s.logLoss + times*t.logLoss}
}

// best is the best of the passes.
func (m means) best() score {
	b := score{math.Inf(-1), math.Inf(1)}
	for _, p := range m.passes {
		b = score{max(b.auc, p.auc), min(b.logLoss, p.logLoss)}
	}
	return b
}

// misses says what a model's score misses beside those of logistic regression and of a constant; both may be NaN.
func misses(s, lr, constant score, linear bool) string {
	var out []string
	below := aucBelow
	if linear {
		below = aucBelowLinear
	}
	if s.auc < lr.auc-below {
		out = append(out, "auc")
	}
	if s.logLoss > lr.logLoss+lossAbove {
		out = append(out, "loss")
	}
	if s.auc < constant.auc || s.logLoss > constant.logLoss || s.auc != s.auc || s.logLoss != s.logLoss {
		out = append(out, "constant")
	}
	return strings.Join(out, " ")
}

// isPeer reports whether a name is that of another program's model.
func isPeer(model string) bool {
	for _, p := range peers {
		if p.name == model {
			return true
		}
	}
	return false
}

// table prints results: a block for each set and batch size, and one of several workers where there are some.
func table(results map[cell]result, o options) string {
	var b strings.Builder
	order := map[string]int{}
	for i, c := range contenders(o) {
		order[c.name] = i
	}
	for _, s := range dataSets("", 1) {
		of := map[cell][]result{} // by cell without its seed, in the order of seeds
		for _, c := range slices.SortedFunc(maps.Keys(results), func(x, y cell) int { return cmp.Compare(x.seed, y.seed) }) {
			if c.set == s.name {
				r := results[c]
				c.seed = 0
				of[c] = append(of[c], r)
			}
		}
		if len(of) == 0 {
			continue
		}
		cells := slices.SortedFunc(maps.Keys(of), func(x, y cell) int {
			return cmp.Or(cmp.Compare(order[x.model], order[y.model]), cmp.Compare(x.batch, y.batch), cmp.Compare(x.workers, y.workers))
		})
		for _, batch := range o.batches {
			b.WriteString(blockOf(s, cells, of, batch, o))
			b.WriteString(workersOf(s, cells, of, batch, o))
		}
	}
	return b.String()
}

// blockOf is the block of a set and a batch size, for one worker.
func blockOf(s dataSet, cells []cell, of map[cell][]result, batch int, o options) string {
	nothing := score{math.NaN(), math.NaN()}
	lr, constant, peer, seeds := nothing, nothing, 0., 0
	for _, c := range cells {
		switch m := meansOf(of[c]); {
		case m.failed != "":
		case c.model == "constant":
			constant = m.kept
		case c.model == "lr" && c.batch == batch && c.workers == o.workers[0]:
			lr = m.kept
		case isPeer(c.model) && (c.batch == 0 || c.batch == batch):
			peer = max(peer, m.kept.auc)
		}
		seeds = max(seeds, len(of[c]))
	}
	head := []string{"model"}
	for _, metric := range []string{"AUC", "loss"} {
		for p := range o.passes {
			head = append(head, fmt.Sprintf("%s %d", metric, p+1))
		}
		head = append(head, metric+" best", metric+" kept")
	}
	head = append(head, "AUC first", "last", "life", "loss first", "last", "life", "misses")
	rows := [][]string{head}
	for _, c := range cells {
		if c.batch != 0 && c.batch != batch || c.workers != 0 && c.workers != o.workers[0] {
			continue
		}
		m := meansOf(of[c])
		if m.failed != "" {
			rows = append(rows, append([]string{c.model}, append(make([]string, len(head)-2), "failed: "+oneLine(m.failed))...))
			continue
		}
		row, best := []string{c.model}, m.best()
		for _, metric := range []func(score) float64{func(s score) float64 { return s.auc }, func(s score) float64 { return s.logLoss }} {
			for p := range o.passes {
				if p < len(m.passes) && (c.batch != 0 || len(m.passes) > 1) {
					row = append(row, figure(metric(m.passes[p])))
				} else {
					row = append(row, "")
				}
			}
			row = append(row, figure(metric(best)), figure(metric(m.kept)))
		}
		for _, x := range []float64{m.first.auc, m.last.auc, m.life.auc, m.first.logLoss, m.last.logLoss, m.life.logLoss} {
			row = append(row, figure(x))
		}
		missed := ""
		if c.model != "constant" && c.model != "best" && !isPeer(c.model) {
			missed = misses(m.kept, lr, constant, s.linear)
		}
		if c.model == initModel && m.kept.auc < peer-peerAbove {
			missed = strings.TrimSpace(missed + " peer")
		}
		rows = append(rows, append(row, missed))
	}
	title := fmt.Sprintf("%s, %s, %s", s.name, batchText(batch), plural(seeds, "seed"))
	if o.workers[0] != 1 {
		title += fmt.Sprintf(", %d workers", o.workers[0])
	}
	return printed(title, rows, o.markdown)
}

// workersOf is the block of what several workers differ by from the first number of them, as means over seeds with
// their standard errors; empty: there is one number only.
func workersOf(s dataSet, cells []cell, of map[cell][]result, batch int, o options) string {
	if len(o.workers) < 2 {
		return ""
	}
	rows := [][]string{{"model", "workers", "AUC kept", "first", "last", "life", "loss kept", "first", "last", "life"}}
	for _, c := range cells {
		base := c
		base.workers = o.workers[0]
		if c.batch != batch || c.workers == 0 || c == base {
			continue
		}
		row := []string{c.model, fmt.Sprint(c.workers)}
		for _, metric := range []func(score) float64{func(s score) float64 { return s.auc }, func(s score) float64 { return s.logLoss }} {
			for _, part := range []func(result) score{
				func(r result) score { return r.kept }, func(r result) score { return r.first },
				func(r result) score { return r.last }, func(r result) score { return r.life },
			} {
				var differences []float64
				for i, r := range of[c] {
					if alone := of[base][i]; r.failed == "" && alone.failed == "" {
						differences = append(differences, metric(part(r))-metric(part(alone)))
					}
				}
				row = append(row, difference(differences))
			}
		}
		rows = append(rows, row)
	}
	return printed(fmt.Sprintf("%s, %s: difference to %s", s.name, batchText(batch), plural(o.workers[0], "worker")), rows, o.markdown)
}

// difference is a mean with its standard error; of one alone nothing is known about it.
func difference(x []float64) string {
	mean, squares := 0., 0.
	for _, d := range x {
		mean += d / float64(len(x))
	}
	for _, d := range x {
		squares += (d - mean) * (d - mean)
	}
	switch len(x) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("%+.4f", mean)
	}
	return fmt.Sprintf("%+.4f ± %.4f", mean, math.Sqrt(squares/float64(len(x)-1)/float64(len(x))))
}

func batchText(n int) string {
	if n == ownBatch {
		return "batch of init"
	}
	return fmt.Sprintf("batch %d", n)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// figure is a score to four digits, empty where there is none.
func figure(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return strings.Replace(fmt.Sprintf("%.4f", x), "0.", ".", 1)
}

// printed is a table with its title.
func printed(title string, rows [][]string, markdown bool) string {
	var b strings.Builder
	if markdown {
		fmt.Fprintf(&b, "**%s**\n\n", title)
		for i, r := range rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
			if i == 0 {
				b.WriteString("|" + strings.Repeat("---|", len(r)) + "\n")
			}
		}
		return b.String() + "\n"
	}
	fmt.Fprintln(&b, title)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t")) // to memory
	}
	_ = w.Flush() // to memory
	return b.String() + "\n"
}
