// Package decimal reads numbers as data has them.
package decimal

import "strconv"

// Parse reads a decimal number as [strconv.ParseFloat] does, and nan and inf. What else is a literal in Go is none in
// data: of 430548_1007 strconv makes 4305481007, and of 0x1p-2 0.25, where other readers of csv find text.
func Parse(s string, bitSize int) (float64, error) {
	x, err := strconv.ParseFloat(s, bitSize)
	if err != nil {
		return x, err
	}
	for i := range len(s) {
		switch s[i] {
		case '_', 'x', 'X', 'p', 'P':
			return 0, strconv.ErrSyntax
		}
	}
	return x, nil
}

// Truth reads true and false as data has them: so, as True and False (pandas), or as TRUE and FALSE (spreadsheets).
func Truth(s string) (is, ok bool) {
	switch s {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}
