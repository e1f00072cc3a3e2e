package conf_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/conf"
)

func TestEdit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, set, want string }{
		{"a number", "train:\n  batch: 512   # rows\n  workers: 2\n", "train.batch=64", "train:\n  batch: 64   # rows\n  workers: 2\n"},
		{"in braces", "model: {deepfm: {dim: 8, hidden: [64, 32]}}   # one\n", "model.deepfm.dim=16", "model: {deepfm: {dim: 16, hidden: [64, 32]}}   # one\n"},
		{"behind variables", "a: {x: ${HOME:-é}, b: 1}\n", "a.b=2", "a: {x: ${HOME:-é}, b: 2}\n"},
		{"quoted", "a: 'it''s'  # c\nb: \"x\\\"y\" # d\n", "a=1 b=2", "a: 1  # c\nb: 2 # d\n"},
		{"short form", "model: lr # c\n", "model.lr.bias_l2=0.1", "model: {lr: {bias_l2: 0.1}} # c\n"},
		{"nothing there", "model:\n  lr:\n# end\n", "model.lr.bias_l2=0.1", "model:\n  lr: {bias_l2: 0.1}\n# end\n"},
		{"new section", "a: 1\n# end", "optimizer.sparse={adagrad: {lr: 1}}", "a: 1\noptimizer: {sparse: {adagrad: {lr: 1}}}\n# end"},
		{"without a last line end", "a: 1", "b=2", "a: 1\nb: 2\n"},
		{"new key of a block", "train:\n  batch: 1 # c\n\n# next\neval: {}\n", "train.workers=2 eval.every=end", "train:\n  batch: 1 # c\n  workers: 2\n\n# next\neval: {every: end}\n"},
		{"new key of a flow over lines", "m: {a: [1,\n  2], # c\n  b: {c: 1 }\n}\n", "m.b.d=2 m.e=3", "m: {a: [1,\n  2], # c\n  b: {c: 1, d: 2 }, e: 3\n}\n"},
		{"a block becomes a flow", "o:\n  sparse:\n    ftrl:\n      lr: 1 # c\n  bias: sgd\n", "o.sparse={adagrad: {lr: 2}}", "o:\n  sparse: {adagrad: {lr: 2}} # c\n  bias: sgd\n"},
		{"element of a list", "l:\n  - {a: 1}\n  - b: 2\n    c: 3\n", "l[0].a=4 l.1.c=5 l[1].d=6", "l:\n  - {a: 4}\n  - b: 2\n    c: 5\n    d: 6\n"},
		{"behind a block of text", "t:\n  a: |\n    x\n", "t.b=1", "t:\n  b: 1\n  a: |\n    x\n"},
		{"windows", "a: 1\r\nb: {c: 2}\r\n", "a=3 b.c=4", "a: 3\r\nb: {c: 4}\r\n"},
		{"an alias", "x: &x {a: 1}\ny: *x\n", "y.a=2", ""},
		{"an anchor", "x: &x 1\ny: *x\n", "x=2", ""},
		{"another short form", "h: 0.1\n", "h.by=user", ""},
		{"no such element", "l: [1]\n", "l[1]=2", ""},
		{"no mapping", "[1]\n", "a=1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var set []conf.KeyText
			for _, kv := range splitSets(tc.set) {
				path, value, _ := strings.Cut(kv, "=")
				set = append(set, conf.KeyText{Path: path, Value: value})
			}
			got, err := conf.Edit([]byte(tc.text), set)
			if string(got) != tc.want || errors.Is(err, conf.ErrEdit) != (tc.want == "") {
				t.Errorf("got %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

// splitSets cuts at blanks in front of a key.
func splitSets(s string) (out []string) {
	for f := range strings.FieldsSeq(s) {
		if strings.Contains(f, "=") {
			out = append(out, f)
		} else {
			out[len(out)-1] += " " + f
		}
	}
	return out
}

// FuzzEdit: there is no panic, whatever the text is.
func FuzzEdit(f *testing.F) {
	f.Add("a: {b: 1}\n")
	f.Add("a:\n  - b: 'x'\n")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = conf.Edit([]byte(text), []conf.KeyText{{Path: "a.b", Value: "{c: 2}"}, {Path: "d", Value: "3"}})
	})
}
