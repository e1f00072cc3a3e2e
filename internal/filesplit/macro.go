package filesplit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var macro = regexp.MustCompile(`\{(DATE|INT)\(([^(){}]*)\)\}`)

// Macros expands Monolith's path macros to the cross product of what they stand for, in order:
//
//	{DATE(20260301,20260303)}      the days 20260301, 20260302, 20260303
//	{DATE(2026030122,2026030201)}  the hours 2026030122, 2026030123, 2026030200, 2026030201
//	{INT(8,11)}                    the numbers 8, 9, 10, 11
//
// Both ends belong to the range (monolith/native_training/data/datasets.py, dataset_input_patterns). A path without
// macros stands for itself. Errors: a range that is not one, or more than 100,000 paths.
func Macros(pattern string) ([]string, error) {
	out := []string{""}
	rest := 0
	for _, m := range macro.FindAllStringSubmatchIndex(pattern, -1) {
		kind, args := pattern[m[2]:m[3]], pattern[m[4]:m[5]]
		from, to, ok := strings.Cut(args, ",")
		if !ok {
			return nil, fmt.Errorf("pattern %q: %s takes a first and a last value", pattern, kind)
		}
		expand := ints
		if kind == "DATE" {
			expand = dates
		}
		values, err := expand(strings.TrimSpace(from), strings.TrimSpace(to))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if len(out)*len(values) > maxPatterns {
			return nil, fmt.Errorf("pattern %q stands for more than %d paths", pattern, maxPatterns)
		}
		next := make([]string, 0, len(out)*len(values))
		for _, head := range out {
			for _, v := range values {
				next = append(next, head+pattern[rest:m[0]]+v)
			}
		}
		out, rest = next, m[1]
	}
	for i := range out {
		out[i] += pattern[rest:]
	}
	return out, nil
}

func ints(from, to string) ([]string, error) {
	a, err := strconv.Atoi(from)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number", from)
	}
	b, err := strconv.Atoi(to)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number", to)
	}
	if a > b || b-a >= maxPatterns || b-a < 0 {
		return nil, fmt.Errorf("%d to %d is not a range of 1 to %d numbers", a, b, maxPatterns)
	}
	out := make([]string, 0, b-a+1)
	for i := a; i <= b; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out, nil
}

func dates(from, to string) ([]string, error) {
	layout, hours := "20060102", 24
	if len(from) == 10 {
		layout, hours = "2006010215", 1
	}
	a, err := time.Parse(layout, from)
	if err != nil {
		return nil, fmt.Errorf("%q is not a day YYYYMMDD or an hour YYYYMMDDHH", from)
	}
	b, err := time.Parse(layout, to)
	if err != nil {
		return nil, fmt.Errorf("%q is not of the form of %q", to, from)
	}
	step := time.Duration(hours) * time.Hour
	if n := b.Sub(a) / step; n < 0 || n >= maxPatterns {
		return nil, fmt.Errorf("%s to %s is not a range of 1 to %d steps", from, to, maxPatterns)
	}
	var out []string
	for ; !a.After(b); a = a.Add(step) {
		out = append(out, a.Format(layout))
	}
	return out, nil
}
