// Package clip shortens what others sent before it goes into an error message, so that the sentence around it stays readable.
package clip

import (
	"fmt"
	"unicode/utf8"
)

// Most is how many bytes of a value a message has.
const Most = 200

// Args shortens the texts among the arguments of a format: strings and byte slices of more than [Most] bytes. Others stay. It returns args
// itself where all are short, and a copy otherwise.
func Args(args []any) []any {
	var out []any
	for i, a := range args {
		short, ok := shorten(a)
		if !ok {
			continue
		}
		if out == nil {
			out = append([]any(nil), args...)
		}
		out[i] = short
	}
	if out == nil {
		return args
	}
	return out
}

func shorten(a any) (string, bool) {
	switch s := a.(type) {
	case string:
		if len(s) > Most {
			return Text(s), true
		}
	case []byte:
		if len(s) > Most {
			return beginning(string(s[:Most+1])) + ending(len(s)), true
		}
	}
	return "", false
}

// Text is the beginning of a long text with how long it is, or all of a short one.
func Text(s string) string {
	if len(s) <= Most {
		return s
	}
	return beginning(s) + ending(len(s))
}

// beginning cuts a text of more than [Most] bytes between two characters.
func beginning(s string) string {
	to := Most
	for to > Most-utf8.UTFMax && !utf8.RuneStart(s[to]) {
		to--
	}
	return s[:to]
}

func ending(n int) string { return fmt.Sprintf("... (%d bytes)", n) }
