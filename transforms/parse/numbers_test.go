package parse_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// What is made of a number is what its formula says, in this order: clip, log, standardise.
func TestNumbers(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.JSONL,
		Features: []parse.Feature{
			{Name: "raw", Column: "x", Kind: parse.Dense},
			{Name: "clip", Column: "x", Kind: parse.Dense, Clip: []float64{-2, 100}},
			{Name: "log", Column: "x", Kind: parse.Dense, Log: true, Default: "3"},
			{Name: "std", Column: "x", Kind: parse.Dense, Mean: 10, Std: 4, Indicator: "gone"},
			{Name: "all", Column: "x", Kind: parse.Dense, Clip: []float64{-2, 100}, Log: true, Mean: 2, Std: 0.5},
			{Name: "two", Column: "xs", Kind: parse.Dense, Dim: 2, Log: true, Indicator: "two_gone", Default: "-1"},
			{Name: "kept", Column: "x", Kind: parse.Dense, KeepMissing: true},
		},
	}
	log := func(x float64) float32 { return float32(math.Copysign(math.Log(1+math.Abs(x)), x)) }
	check(t, parseRecords(t, opts, "", lines(`{"x": 7, "xs": [1, -5]}
{"x": -1e6}
{"x": 1e8, "xs": []}
{"x": null}`)...),
		[]string{
			fmt.Sprintf("raw=7 clip=7 log=%v std=-0.75 gone=0 all=%v two=[%v %v] two_gone=0 kept=7 __position__=10", log(7), float32((math.Log(8)-2)/0.5), log(1), log(-5)),
			fmt.Sprintf("raw=-1e+06 clip=-2 log=%v std=-10 gone=0 all=%v two=[%v %v] two_gone=1 kept=-1e+06 __position__=20", log(-1e6), float32((-math.Log(3)-2)/0.5), log(-1), log(-1)),
			fmt.Sprintf("raw=1e+08 clip=100 log=%v std=10 gone=0 all=%v two=[%v %v] two_gone=1 kept=1e+08 __position__=30", log(1e8), float32((math.Log(101)-2)/0.5), log(-1), log(-1)),
			fmt.Sprintf("raw=0 clip=0 log=%v std=0 gone=1 all=0 two=[%v %v] two_gone=1 kept=NaN __position__=40", log(3), log(-1), log(-1)),
		}, nil)
}

// A number that options bring back into range is no bad row, whatever it was.
func TestAbsurdNumbersThatAreClipped(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.CSV, Columns: []string{"x"},
		Features: []parse.Feature{
			{Name: "clip", Column: "x", Kind: parse.Dense, Clip: []float64{0, 5}},
			{Name: "log", Column: "x", Kind: parse.Dense, Log: true},
			{Name: "std", Column: "x", Kind: parse.Dense, Std: 1},
		},
	}
	check(t, parseRecords(t, opts, "", lines("1e30\ninf")...),
		[]string{"clip=5 log=69.07755 std=10 __position__=10"},
		[]string{`src/part-0 position 10: not finite: feature "clip" is +Inf "inf"`})
	opts.Features = []parse.Feature{{Name: "x", Kind: parse.Dense, KeepMissing: true}}
	check(t, parseRecords(t, opts, "", lines("1e14\n1e16")...), []string{"x=1e+14 __position__=10"},
		[]string{`src/part-0 position 10: value out of range: feature "x" is 1e+16, a dense value is 1e+15 at most; clip it, or take its log "1e16"`})
}

// A bucket holds its lower boundary and not its upper one.
func TestBuckets(t *testing.T) {
	t.Parallel()
	features := []parse.Feature{
		{Name: "age", Slot: 3, Buckets: []float64{18, 25.5, 35}, MissingBucket: true},
		{Name: "old", Column: "age", Slot: 4, Buckets: []float64{60}, Default: "70"},
		{Name: "log2", Column: "age", Slot: 5, Type: parse.Float},
	}
	want := []string{
		"age=[3:0] old=[4:0] log2=[5:4] __position__=10", "age=[3:1] old=[4:0] log2=[5:4] __position__=20", "age=[3:2] old=[4:0] log2=[5:4] __position__=30",
		"age=[3:3] old=[4:1] log2=[5:5] __position__=40", "age=[3:4] old=[4:1] log2=[] __position__=50", "age=[3:0] old=[4:0] log2=[5:2] __position__=60",
	}
	check(t, parseRecords(t, parse.Options{Format: parse.CSV, Columns: []string{"age", "y"}, Features: features}, "", lines("17.99,\n18,\n25.5,\n60,\n,\n-3,")...), want, nil)
	check(t, parseRecords(t, parse.Options{Format: parse.JSONL, Features: features}, "",
		lines(`{"age":17.99}`+"\n"+`{"age":18}`+"\n"+`{"age":25.5}`+"\n"+`{"age":60}`+"\n{}\n"+`{"age":-3}`)...), want, nil)
}

// Side tables go the same way.
func TestNumbersOfSideTables(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.CSV, Columns: []string{"user"},
		Features: []parse.Feature{
			{Name: "age", Kind: parse.Dense, Mean: 20, Std: 10, Indicator: "age_missing"}, {Name: "band", Column: "age", Slot: 2, Buckets: []float64{30}, MissingBucket: true},
		},
		Joins: []parse.Join{{File: writeFile(t, "users.tsv", "a\t25\nb\t\nc\t1e30\n"), Columns: []string{"user", "age"}, Key: "user"}},
	}
	check(t, parseRecords(t, opts, "", lines("a\nb\nx")...), []string{
		"age=0.5 age_missing=0 band=[2:0] __position__=10", "age=0 age_missing=1 band=[2:2] __position__=20", "age=0 age_missing=1 band=[2:2] __position__=30",
	}, nil)
}

func TestFaultsOfNumbers(t *testing.T) {
	t.Parallel()
	dense := func(f parse.Feature) parse.Feature { f.Name, f.Kind = "x", parse.Dense; return f }
	sparse := func(f parse.Feature) parse.Feature { f.Name, f.Slot = "x", 1; return f }
	for want, f := range map[string]parse.Feature{
		"clip is [1], not a lower and an upper bound":   dense(parse.Feature{Clip: []float64{1}}),
		"clip is [2 1], not a lower and an upper bound": dense(parse.Feature{Clip: []float64{2, 1}}),
		"mean is 0 and std -1":                          dense(parse.Feature{Std: -1}),
		"buckets make a sparse feature":                 dense(parse.Feature{Buckets: []float64{1}}),
		"do not ascend: 1 at place 2":                   sparse(parse.Feature{Buckets: []float64{1, 1}}),
		"buckets are of numbers, but the type is int":   sparse(parse.Feature{Buckets: []float64{1}, Type: parse.Int}),
		"hash is for integers and text":                 sparse(parse.Feature{Buckets: []float64{1}, Hash: parse.HashInt}),
		"a default and a bucket of their own":           sparse(parse.Feature{Buckets: []float64{1}, MissingBucket: true, Default: "3"}),
		"a bucket for missing values, but no buckets":   sparse(parse.Feature{MissingBucket: true}),
		"are for dense features":                        sparse(parse.Feature{Log: true}),
		`feature "x" occurs twice`:                      dense(parse.Feature{Indicator: "x"}),
	} {
		err := parse.Options{Format: parse.JSONL, Features: []parse.Feature{f}}.Validate()
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	if diff := cmp.Diff(nil, parse.Options{Format: parse.JSONL, Features: []parse.Feature{sparse(parse.Feature{Buckets: []float64{}})}}.Validate()); diff != "" {
		t.Errorf("no boundary is one bucket: %s", diff)
	}
}
