package peek

import (
	"bytes"
	"fmt"

	"github.com/monolith-go/monolith/internal/hint"
)

// Misread says what records are that no job can read, though they may look like a format, and what to do about it; ""
// of all others. It takes what most of the records are. The first may name columns.
func Misread(format string, records [][]byte) string {
	if len(records) == 0 {
		return ""
	}
	switch format {
	case CSV, TSV, Text, Binary:
	default:
		return ""
	}
	if h := most(records, hint.Wrapped); h != "" {
		return h
	}
	if h := most(records, hint.LibFM); h != "" {
		return h
	}
	if format == Binary {
		return ""
	}
	first := bytes.TrimSpace(records[0])
	if rest, ok := bytes.CutPrefix(first, []byte{'['}); ok {
		if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] == '{' {
			return "it is a JSON list, and a record is an object in a line of its own: write them so, with jq -c '.[]' for example"
		}
	}
	if len(first) == 1 && first[0] == '{' {
		return "it has JSON objects over several lines, and a record is an object in a line of its own: write them so, with jq -c . for example"
	}
	if bytes.ContainsAny(first, ",\t") {
		return ""
	}
	for _, sep := range []string{"::", ";", "|"} {
		n, same := bytes.Count(first, []byte(sep)), 0
		for _, r := range records {
			if bytes.Count(r, []byte(sep)) == n {
				same++
			}
		}
		if n > 0 && 10*same >= 9*len(records) {
			return fmt.Sprintf("its fields stand between %q, and those of a job between commas or tabs: write tabs, with sed 's/%s/\\t/g' for example, into a file whose name ends in .tsv", sep, sep)
		}
	}
	return ""
}

// most is the hint that at least half of the records have in common, or "".
func most(records [][]byte, of func([]byte) string) string {
	found, example := 0, ""
	for _, r := range records {
		if h := of(r); h != "" {
			found++
			if example == "" {
				example = h
			}
		}
	}
	if 2*found < len(records) {
		return ""
	}
	return example
}
