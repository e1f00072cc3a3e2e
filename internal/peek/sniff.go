package peek

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/hint"
)

// SniffRecords is how many records [Sniff] needs at most to recognise a format.
const SniffRecords = 100

// formatOf is the format that a file's extension names.
var formatOf = map[string]string{
	".csv": CSV, ".tsv": TSV, ".tab": TSV, ".json": JSONL, ".jsonl": JSONL, ".ndjson": JSONL,
	".libfm": LibFM, ".libsvm": LibFM, ".svm": LibFM, ".svmlight": LibFM,
}

// FormatOf is the format that a file's extension names, such as ".csv"; "" of others.
func FormatOf(extension string) string { return formatOf[strings.ToLower(extension)] }

// Sniff recognises the format of records by majority; "" when there are none. extension is that of the file, or empty.
//
// The format with most records wins if it has half of them, for csv and tsv two thirds. The format of the extension wins
// when a third of the records are of it and no other format has nine in ten. Records of other shapes are bad rows then.
func Sniff(records [][]byte, extension string) string {
	if len(records) == 0 {
		return ""
	}
	// The order decides between equals: libfm with one entry has no comma, a line of JSON has some.
	counts := []struct {
		format string
		n      int
	}{
		{JSONL, count(records, isJSON)},
		{TFExample, count(records, isExample)},
		{LibFM, libFMs(records)},
		{TSV, sameWidth(TSV, records)},
		{CSV, sameWidth(CSV, records)},
	}
	best := counts[0]
	for _, c := range counts[1:] {
		if c.n > best.n {
			best = c
		}
	}
	if named := FormatOf(extension); named != "" && 10*best.n < 9*len(records) {
		for _, c := range counts {
			if c.format == named && 3*c.n >= len(records) {
				return named
			}
		}
	}
	delimited := best.format == CSV || best.format == TSV
	switch {
	case best.n > 0 && (!delimited && 2*best.n >= len(records) || 3*best.n >= 2*len(records)):
		return best.format
	case 2*count(records, isText) > len(records):
		return Text
	}
	return Binary
}

func count(records [][]byte, is func([]byte) bool) (n int) {
	for _, r := range records {
		if is(r) {
			n++
		}
	}
	return n
}

// isJSON reports whether a record is meant as a JSON object: a valid one, or one in which a program wrote NaN or an infinity.
func isJSON(r []byte) bool {
	r = bytes.TrimSpace(r)
	if len(r) == 0 || r[0] != '{' {
		return false
	}
	if json.Valid(r) {
		return true
	}
	plain, some := hint.WithoutNaN(r)
	return some && json.Valid(plain)
}

func isExample(r []byte) bool {
	f, err := example.All(r)
	return err == nil && len(f) > 0
}

// libFMs counts rows of libfm. A number alone is one where other rows have entries.
func libFMs(records [][]byte) (n int) {
	entries := false
	for _, r := range records {
		if isLibFM(r) {
			n++
			entries = entries || len(bytes.Fields(r)) > 1
		}
	}
	if !entries {
		return 0
	}
	return n
}

// isLibFM reports whether a record is a number and index:value entries.
func isLibFM(r []byte) bool {
	parts := strings.Fields(string(r))
	if len(parts) == 0 {
		return false
	}
	if _, err := decimal.Parse(parts[0], 64); err != nil {
		return false
	}
	for _, p := range parts[1:] {
		index, value, ok := strings.Cut(p, ":")
		_, err := strconv.ParseUint(index, 10, 64)
		if _, err2 := decimal.Parse(value, 64); !ok || err != nil || err2 != nil {
			return false
		}
	}
	return true
}

// sameWidth counts the records that have as many fields as most have, which is more than one.
func sameWidth(format string, records [][]byte) int {
	_, n := usualWidth(format, records)
	return n
}

// Usual returns the first record of csv or tsv that has as many fields as most have; the first one where none has two.
func Usual(format string, records [][]byte) []byte {
	width, n := usualWidth(format, records)
	for _, r := range records {
		if f, err := split(format, r); n > 0 && err == nil && len(f) == width {
			return r
		}
	}
	return records[0]
}

// usualWidth is how many fields most records have, and how many these are. Records with less than two count for nothing.
func usualWidth(format string, records [][]byte) (width, most int) {
	widths := map[int]int{}
	for _, r := range records {
		if !isText(r) {
			continue
		}
		f, err := split(format, r)
		if n := len(f); err == nil && n > 1 {
			if widths[n]++; widths[n] > most {
				width, most = n, widths[n]
			}
		}
	}
	return width, most
}

// Lines cuts text into the lines that hold something. whole reports that the text does not end within one.
func Lines(text []byte, whole bool) [][]byte {
	lines := bytes.Split(bytes.TrimPrefix(text, []byte("\ufeff")), []byte{'\n'})
	if !whole {
		lines = lines[:max(1, len(lines)-1)] // the last one is cut
	}
	return slices.DeleteFunc(lines, func(l []byte) bool { return len(bytes.TrimSpace(l)) == 0 })
}

// Records joins the lines of csv that are one record, because they have line ends in quotes.
func Records(lines [][]byte) (out [][]byte) {
	const most = 100
	for i := 0; i < len(lines); i++ {
		r, n := lines[i], 1
		for bytes.Count(r, []byte{'"'})%2 == 1 && n < most && i+n < len(lines) {
			r = slices.Concat(r, []byte{'\n'}, lines[i+n])
			n++
		}
		if bytes.Count(r, []byte{'"'})%2 == 1 { // a quote that nothing closes
			r, n = lines[i], 1
		}
		out = append(out, r)
		i += n - 1
	}
	return out
}
