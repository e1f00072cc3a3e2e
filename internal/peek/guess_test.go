package peek_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/peek"
)

// guessed proposes for records of csv with columns item, label and those that row gives: x, z, weight. A value may be empty.
func guessed(records int, o peek.ProposeOptions, row func(i int, rng *rand.Rand) map[string]string) peek.Proposal {
	rng := rand.New(rand.NewPCG(36, 4))
	var c peek.Columns
	for i := range records {
		values := map[string]string{"item": fmt.Sprint(rng.IntN(50)), "label": fmt.Sprint(rng.IntN(2))}
		maps.Copy(values, row(i, rng))
		var fields []peek.Field
		for _, name := range []string{"item", "x", "z", "weight", "label"} {
			if v, ok := values[name]; ok {
				f := peek.Field{Name: name, Type: "text"}
				if v != "" {
					f.Value = v
				}
				fields = append(fields, f)
			}
		}
		c.Add(fields)
	}
	o.Format, o.Header = peek.CSV, true
	return peek.Propose(&c, o)
}

// TestProposeScales: numbers reach the model in the size of 1, with gaps as an input, and the comment has the figure.
func TestProposeScales(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		x    func(rng *rand.Rand) string
		want string
	}{
		"size 2 to 5":        {func(r *rand.Rand) string { return fmt.Sprintf("%.3f", 2+3*r.Float64()) }, "{name: x, kind: dense, standardise: running}   # 2.00"},
		"within 1":           {func(r *rand.Rand) string { return fmt.Sprintf("%.3f", 2*r.Float64()-1) }, "{name: x, kind: dense}   # -"},
		"hardly different":   {func(r *rand.Rand) string { return fmt.Sprintf("%.5f", .01*r.Float64()) }, "standardise: running}   # 1e-05 to 0.00"},
		"a long tail":        {func(r *rand.Rand) string { return fmt.Sprintf("%.2f", math.Exp(2*r.NormFloat64()+3)) }, "{name: x, kind: dense, log: true, standardise: running}   #"},
		"counts":             {func(r *rand.Rand) string { return fmt.Sprint(int(math.Exp(2*r.NormFloat64()) + 1)) }, "{name: x, kind: dense, log: true, standardise: running}   #"},
		"counts, some below": {func(r *rand.Rand) string { return fmt.Sprint(int(math.Exp(2*r.NormFloat64()+2)) - 2) }, "{name: x, kind: dense, log: true, standardise: running}   # -2"},
		"gaps": {
			func(r *rand.Rand) string { return []string{"", fmt.Sprintf("%.3f", 9*r.Float64())}[min(1, r.IntN(4))] },
			"{name: x, kind: dense, standardise: running, missing: indicator}",
		},
		"whole, even":         {func(r *rand.Rand) string { return fmt.Sprint(r.IntN(300)) }, "{name: x, slot: 2}   # whole numbers: an id, or"},
		"floats with gaps":    {func(r *rand.Rand) string { return []string{"", fmt.Sprintf("%d.0", 1+r.IntN(70))}[min(1, r.IntN(4))] }, "{name: x, slot: 2}   # in"},
		"floats, wide":        {func(r *rand.Rand) string { return fmt.Sprintf("%d.0", 17031000000+r.IntN(70)*10007) }, "{name: x, slot: 2}   # written as 17031"},
		"floats, all written": {func(r *rand.Rand) string { return fmt.Sprintf("%d.0", 1+r.IntN(70)) }, "{name: x, kind: dense, standardise: running}"},
	} {
		got := guessed(1000, peek.ProposeOptions{}, func(_ int, r *rand.Rand) map[string]string { return map[string]string{"x": tt.x(r)} }).YAML
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: no %s in\n%s", name, tt.want, got)
		}
	}
}

// TestProposeLeaks: what tells the label alone, or divided by another number, is left out with the figure and what brings it back. What tells it of records it has seen only is not.
func TestProposeLeaks(t *testing.T) {
	t.Parallel()
	sometimes := func(r *rand.Rand, share float64, a, b string) string {
		if r.Float64() < share {
			return a
		}
		return b
	}
	for name, tt := range map[string]struct {
		row  func(i int, r *rand.Rand) map[string]string
		want string
		not  string
	}{
		"a copy": {
			func(_ int, r *rand.Rand) map[string]string {
				y := r.IntN(2)
				return map[string]string{"label": fmt.Sprint(y), "x": []string{"no", "yes"}[y]}
			}, "    # - x: left out, LEAK? alone it tells label with an AUC of 1 (learnt on half of 1000 records, measured on the others). If it is known before the label, bring it back:\n    # - {name: x, slot: 2}\n", "",
		},
		"a number that was cut": {
			func(_ int, r *rand.Rand) map[string]string {
				x := r.NormFloat64()
				return map[string]string{"label": fmt.Sprint(min(1, max(0, int(math.Ceil(x-.3))))), "x": fmt.Sprintf("%.4f", x)}
			}, "# - x: left out, LEAK? alone it tells label with an AUC of 0.99", "",
		},
		"a range": {
			func(_ int, r *rand.Rand) map[string]string {
				x, y := r.Float64(), "0"
				if x > .3 && x < .6 {
					y = "1"
				}
				return map[string]string{"label": y, "x": fmt.Sprintf("%.4f", x)}
			}, "# - x: left out, LEAK? alone it tells label with an AUC of 0.99", "",
		},
		"gaps": {
			func(_ int, r *rand.Rand) map[string]string {
				y := r.IntN(2)
				return map[string]string{"label": fmt.Sprint(y), "x": []string{fmt.Sprint(1 + r.IntN(5)), ""}[y]}
			}, "# - x: left out, LEAK? alone", "",
		},
		"a share of another": {
			func(_ int, r *rand.Rand) map[string]string {
				fare, tip, y := 3+30*r.Float64(), 0., "0"
				if r.IntN(2) == 0 {
					tip = fare * (.1 + .2*r.Float64())
				}
				if tip > .2*fare {
					y = "1"
				}
				return map[string]string{"label": y, "x": fmt.Sprintf("%.2f", tip), "z": fmt.Sprintf("%.2f", fare)}
			}, "# - x: left out, LEAK? with z (x / z) it tells label with an AUC of", "# - z: left out",
		},
		"ids that come once or twice": {
			func(i int, _ *rand.Rand) map[string]string { return map[string]string{"x": fmt.Sprintf("u%d", i/2)} },
			"{name: x, slot: 2}", "LEAK",
		},
		"good, and no leak": {
			func(_ int, r *rand.Rand) map[string]string {
				y := r.IntN(2)
				return map[string]string{"label": fmt.Sprint(y), "x": sometimes(r, .05, "card", []string{"cash", "card"}[y])}
			}, "{name: x, slot: 2}", "LEAK",
		},
		"few positives": {
			func(i int, _ *rand.Rand) map[string]string {
				y := fmt.Sprint(max(0, i-980))
				if y != "0" {
					y = "1"
				}
				return map[string]string{"label": y, "x": "v" + y}
			}, "{name: x, slot: 2}", "alone",
		},
		"always the same": {
			func(int, *rand.Rand) map[string]string { return map[string]string{"x": "1"} },
			"# - x: left out, it is always 1", "LEAK",
		},
	} {
		got := guessed(1000, peek.ProposeOptions{}, tt.row).YAML
		if !strings.Contains(got, tt.want) || tt.not != "" && strings.Contains(got, tt.not) {
			t.Errorf("%s: no %s, or %q, in\n%s", name, tt.want, tt.not, got)
		}
	}
}

// TestProposeWeights: positive numbers of about 1 that are called so are weights; ids, amounts and numbers below 0 are not.
func TestProposeWeights(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		weight func(i int, r *rand.Rand) string
		want   string
	}{
		"weights":    {func(_ int, r *rand.Rand) string { return fmt.Sprintf("%.2f", .5+r.Float64()) }, "  weight: {name: weight}   # positive, 0.5"},
		"kilograms":  {func(_ int, r *rand.Rand) string { return fmt.Sprintf("%.1f", 50+50*r.Float64()) }, "{name: weight, kind: dense, standardise: running}   # 5"},
		"below 0":    {func(_ int, r *rand.Rand) string { return fmt.Sprintf("%.2f", 1+r.NormFloat64()) }, "no weight of examples: it goes below 0"},
		"ids":        {func(_ int, r *rand.Rand) string { return fmt.Sprint(1_000_000 + r.IntN(500)) }, "no weight of examples: whole numbers up to 1.0"},
		"gaps":       {func(_ int, r *rand.Rand) string { return []string{"", "0.5", "1.5"}[r.IntN(3)] }, "no weight of examples: not a number in every record"},
		"one is all": {func(i int, _ *rand.Rand) string { return []string{"0.01", "990.01"}[max(0, i-998)] }, "no weight of examples: it goes to 990.01"},
	} {
		p := guessed(1000, peek.ProposeOptions{}, func(i int, r *rand.Rand) map[string]string { return map[string]string{"weight": tt.weight(i, r)} })
		if !strings.Contains(p.YAML, tt.want) || (p.Weight == "weight") != (name == "weights") || strings.Contains(p.YAML, "weight: {") != (name == "weights") {
			t.Errorf("%s: no %s in\n%s", name, tt.want, p.YAML)
		}
	}
}

// TestProposeIDsThatComeOnce: an id that comes once teaches nothing, where enough records say so, unless there is nothing else.
func TestProposeIDsThatComeOnce(t *testing.T) {
	t.Parallel()
	unique := func(i int, _ *rand.Rand) map[string]string {
		return map[string]string{"x": fmt.Sprintf("%x", i*2654435761)}
	}
	twice := func(i int, _ *rand.Rand) map[string]string {
		return map[string]string{"x": fmt.Sprintf("%x", max(i, 1)*2654435761)}
	}
	for name, tt := range map[string]struct {
		records int
		o       peek.ProposeOptions
		row     func(i int, r *rand.Rand) map[string]string
		want    string
	}{
		"many": {2000, peek.ProposeOptions{}, unique, "# - x: left out, it is another in each of 2000 records"},
		"few":  {400, peek.ProposeOptions{}, unique, "{name: x, slot: 2}   # another in every record that was looked at"},
		"all":  {400, peek.ProposeOptions{All: true}, unique, "# - x: left out, it is another in each of all 400 records"},
		"lists": {2000, peek.ProposeOptions{All: true}, func(i int, _ *rand.Rand) map[string]string {
			return map[string]string{"x": fmt.Sprintf("a%d|b%d|c%d", i%20, i/20%10, i/200)}
		}, `{name: x, slot: 2, split: "|", combiner: mean}`},
		"once twice":  {2000, peek.ProposeOptions{}, twice, "{name: x, slot: 2}\n"},
		"late, twice": {3000, peek.ProposeOptions{}, func(i int, r *rand.Rand) map[string]string { return unique(min(i, 2998), r) }, "{name: x, slot: 2}"},
		"nothing else": {2000, peek.ProposeOptions{}, func(i int, r *rand.Rand) map[string]string {
			out := unique(i, r)
			out["item"] = "1"
			return out
		}, "{name: x, slot: 2}   # it is another in each of 2000"},
	} {
		if got := guessed(tt.records, tt.o, tt.row).YAML; !strings.Contains(got, tt.want) {
			t.Errorf("%s: no %s in\n%s", name, tt.want, got)
		}
	}
}
