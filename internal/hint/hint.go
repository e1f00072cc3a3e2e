// Package hint names records that no format reads as they are: wrapped ones, and relatives of libfm. Each hint is one
// sentence that says what the record seems to be and how to convert it.
package hint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
	"github.com/monolith-go/monolith/internal/foreign"
)

// Explain adds a hint to an error; without a hint the error stays as it is.
func Explain(err error, hint string) error {
	if err == nil || hint == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, hint)
}

// frame is how many bytes a schema registry's client puts in front of a value: 0, and the schema's id.
const frame = 5

// Wrapped says what a record is wrapped in, and how to write it plain; "" when it is not wrapped.
func Wrapped(b []byte) string {
	if is := foreign.Record(b); is != "" {
		return is
	}
	if len(b) > frame && b[0] == 0 {
		is, rest := "Avro or Protobuf, which no format reads: convert the values to JSON", bytes.TrimSpace(b[frame:])
		if len(rest) > 0 && rest[0] == '{' {
			is = "JSON: produce it without the frame, with a plain JSON serializer"
		}
		return fmt.Sprintf("the record begins with a schema registry's frame (schema %d), and behind its %d bytes comes %s", binary.BigEndian.Uint32(b[1:]), frame, is)
	}
	var inner string
	if t := bytes.TrimSpace(b); len(t) > 1 && t[0] == '"' && json.Unmarshal(t, &inner) == nil && IsObject(inner) {
		return "the record is a JSON text that holds a JSON object: write the object itself, as jq -c fromjson does"
	}
	return ""
}

// notANumber matches what Python's json module writes for NaN and infinities.
var notANumber = regexp.MustCompile(`([:,\[]\s*)(NaN|-?Infinity)\b`)

// WithoutNaN replaces NaN and infinities of Python's json module with 0, and reports whether there were any.
func WithoutNaN(record []byte) ([]byte, bool) {
	if !bytes.Contains(record, []byte("NaN")) && !bytes.Contains(record, []byte("Infinity")) {
		return record, false
	}
	out := notANumber.ReplaceAll(record, []byte("${1}0"))
	return out, !bytes.Equal(out, record)
}

// JSON says what keeps a record from being JSON, and what to write in its place; "" where that is not known.
func JSON(record []byte) string {
	if plain, some := WithoutNaN(record); some && json.Valid(plain) {
		return "JSON has neither NaN nor infinities: write null"
	}
	if t := bytes.TrimSpace(record); len(t) > 0 && t[0] == '[' && json.Valid(t) {
		return "the record is a JSON list: write one object a record"
	}
	return ""
}

// IsObject reports whether a text is a JSON object.
func IsObject(s string) bool {
	s = strings.TrimSpace(s)
	return len(s) > 1 && s[0] == '{' && json.Valid([]byte(s))
}

// LibFM says which relative of libfm a row is written in, and how to convert it; "" for all other rows. It is for rows
// that libfm does not read.
func LibFM(row []byte) string {
	text := string(row)
	rest, _, comment := strings.Cut(text, "#")
	parts := strings.Fields(rest)
	if comment && (len(parts) == 0 || isNumber(parts[0])) {
		return "the row has a comment: remove comments, with sed 's/ *#.*//' FILE | grep . for example"
	}
	if len(parts) < 2 {
		return ""
	}
	entries, fields, bare, others := 0, 0, 0, 0
	for _, p := range parts[1:] {
		switch cut := strings.Split(p, ":"); {
		case cut[0] == "qid" && len(cut) == 2:
			return "the row has a query (qid): write csv or jsonl with a column for the query and one for each feature, and name the query's column in eval.group"
		case len(cut) == 1 && isIndex(p):
			bare++
		case len(cut) == 2 && isIndex(cut[0]) && isNumber(cut[1]):
			entries++
		case len(cut) == 3 && isIndex(cut[0]) && isIndex(cut[1]) && isNumber(cut[2]):
			fields++
		default:
			others++
		}
	}
	first := parts[0]
	label, weight, weighed := strings.Cut(first, ":")
	switch {
	case others > 0:
	case fields > 0:
		return "the entries are libffm's field:index:value: cut off the fields, with sed -E 's/ [0-9]+:([0-9]+:)/ \\1/g' FILE for example, and where each row has one entry a field, name these in parse.fields"
	case entries+bare == 0:
	case weighed && isNumber(label) && isNumber(weight) && entries > 0:
		return "the label has a weight (label:weight): write csv or jsonl with a column for the label, for the weight (parse.weight) and for each feature"
	case strings.Contains(first, ",") && allNumbers(strings.Split(first, ",")) && entries > 0:
		return "the row has several labels: write one a row, or csv or jsonl with a column for each label (heads) and each feature"
	case bare > 0 && isNumber(first) && !strings.ContainsAny(text, "\t,"):
		return "the entries have no value: write 3:1 for 3, with sed -E ':a; s/ ([0-9]+)( |$)/ \\1:1\\2/; ta' FILE for example"
	}
	return ""
}

func isNumber(s string) bool {
	_, err := decimal.Parse(s, 64)
	return err == nil
}

func isIndex(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

func allNumbers(list []string) bool {
	for _, s := range list {
		if !isNumber(s) {
			return false
		}
	}
	return true
}
