package arch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// served is a metric of the pages docs/metrics.md and docs/serve.md, which are compared with scrapes elsewhere.
type served struct {
	histogram bool
	labels    []string
}

// metricsOfPages reads the tables of metrics.
func metricsOfPages(t *testing.T) map[string]served {
	t.Helper()
	line := regexp.MustCompile("(?m)^\\| `([a-z_:]+)` \\| (counter|gauge|histogram) \\| ([^|]*) \\| [^|]+ \\|$")
	out := map[string]served{}
	for _, page := range []string{"docs/metrics.md", "docs/serve.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		rows := line.FindAllStringSubmatch(string(text), -1)
		if len(rows) < 15 {
			t.Errorf("%s has %d metrics; the table has another form", page, len(rows))
		}
		for _, m := range rows {
			out[m[1]] = served{m[2] == "histogram", strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })}
		}
	}
	return out
}

var (
	ofOurs   = regexp.MustCompile(`((?:monolith_|:tensorflow:serving:)[a-z_]+)(\{[^}]*\})?`)
	selector = regexp.MustCompile(`([A-Za-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	shown    = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([A-Za-z_]+) ?\}\}`)
)

// wrongIn says what is wrong with a query, and with a text that shows labels of its result.
func wrongIn(metrics map[string]served, query, text string) (wrong []string) {
	labels := []string{"instance", "le"} // of all
	found := ofOurs.FindAllStringSubmatch(query, -1)
	for _, m := range found {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && metrics[base].histogram {
				name = base
			}
		}
		of, ok := metrics[name]
		switch {
		case !ok:
			wrong = append(wrong, "no metric "+name)
		case of.histogram == (name == m[1]):
			wrong = append(wrong, name+" is read as what it is not")
		}
		labels = append(labels, of.labels...)
		for _, s := range selector.FindAllStringSubmatch(m[2], -1) {
			if s[1] != "instance" && !slices.Contains(of.labels, s[1]) {
				wrong = append(wrong, name+" has no label "+s[1])
			}
			if s[1] == "status" {
				for value := range strings.SplitSeq(s[3], "|") {
					if !slices.Contains(statuses(), value) {
						wrong = append(wrong, "no status is "+value)
					}
				}
			}
		}
	}
	if len(found) == 0 && query != `process_resident_memory_bytes{instance=~"$instance"}` {
		wrong = append(wrong, "nothing of ours")
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			if !slices.Contains(labels, label) {
				wrong = append(wrong, "grouped by "+label+", which is no label")
			}
		}
	}
	for _, m := range shown.FindAllStringSubmatch(text, -1) {
		by := grouping.FindStringSubmatch(query)
		if !slices.Contains(labels, m[1]) || by != nil && !slices.Contains(strings.Split(by[1], ", "), m[1]) {
			wrong = append(wrong, "shows "+m[1]+", which the result has not")
		}
	}
	return wrong
}

// statuses are the values of the label status.
func statuses() (out []string) {
	for c := range codes.Code(17) {
		out = append(out, c.String())
	}
	return out
}

// TestAlertsAndDashboard: what deploy/ asks Prometheus for is there, with these labels.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	metrics := metricsOfPages(t)
	rules, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/monolith.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := strings.Split(string(rules), "- alert: ")[1:]
	expr := regexp.MustCompile(`(?m)^ +expr: (.+)$`)
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		query := expr.FindStringSubmatch(alert)
		if query == nil {
			t.Errorf("%s has no expression of one line", name)
			continue
		}
		for _, w := range wrongIn(metrics, query[1], alert) {
			t.Errorf("alert %s: %s", name, w)
		}
		// Series of counters begin when there is something to count: what happens once is no increase.
		if q := query[1]; strings.Contains(q, "increase(") && !strings.Contains(alert, " for: ") && !strings.Contains(q, " unless ") {
			t.Errorf("alert %s does not see the first of what it counts; add: or (COUNTER unless COUNTER offset ...) > 0", name)
		}
	}
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/grafana/monolith.json"))
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries++
			for _, w := range wrongIn(metrics, target.Expr, target.LegendFormat) {
				t.Errorf("panel %q: %s", p.Title, w)
			}
		}
	}
	if len(alerts) < 10 || queries < 20 {
		t.Errorf("%d alerts and %d queries of panels were found", len(alerts), queries)
	}
}

// TestWrongQueries is the check of the check.
func TestWrongQueries(t *testing.T) {
	t.Parallel()
	metrics := metricsOfPages(t)
	for query, want := range map[string]string{
		`monolith_snapshot_age_seconds > 5`:                              "no metric",
		`rate(monolith_step_duration_seconds[5m])`:                       "as what it is not",
		`monolith_ps_rows{tables="x"}`:                                   "no label tables",
		`sum by (worker) (monolith_ps_rows)`:                             "by worker",
		`rate(:tensorflow:serving:request_count{status="INTERNAL"}[5m])`: "no status",
		`go_goroutines`:                        "nothing of ours",
		`sum by (instance) (monolith_ps_rows)`: "shows table",
		`sum by (table) (rate(monolith_ps_rows{instance="a",table=~"x|y"}[5m]))`:               "",
		`sum by (le, table) (monolith_ps_rows) / sum(monolith_step_duration_seconds_bucket{})`: "",
	} {
		wrong := strings.Join(wrongIn(metrics, query, "{{table}}"), "; ")
		if want == "" && wrong != "" || !strings.Contains(wrong, want) {
			t.Errorf("%s: %q, want %q", query, wrong, want)
		}
	}
}
