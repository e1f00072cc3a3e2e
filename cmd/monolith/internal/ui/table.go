package ui

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table writes rows in columns that line up, two spaces apart, without trailing blanks. The columns whose index is in
// right are set flush right.
func Table(w io.Writer, rows [][]string, right ...int) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	flush := map[int]bool{}
	for _, i := range right {
		flush[i] = true
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if i > 0 {
				b.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if flush[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Count renders a number with a comma between thousands.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes renders a size: 950 B, 12.3 KiB, 1.25 GiB.
func Bytes(n int64) string {
	x, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 999.5 {
			break
		}
		x, unit = x/1024, next
	}
	return trim(x) + " " + unit
}

// Short renders a rate in three digits: 950, 12.3k, 1.25M.
func Short(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "-"
	case x >= 999.5e6:
		return trim(x/1e9) + "G"
	case x >= 999.5e3:
		return trim(x/1e6) + "M"
	case x >= 999.5:
		return trim(x/1e3) + "k"
	}
	return trim(x)
}

func trim(x float64) string {
	switch {
	case x >= 99.95:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// Score renders a metric with four decimals, or "-" when it is not a number.
func Score(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', 4, 64)
}
