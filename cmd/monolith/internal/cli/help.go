package cli

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
)

// setHelp has help written in lines that are no wider than the terminal, or 80 columns where there is none.
func (a *App) setHelp(root *cobra.Command) {
	width := ui.Width(a.Stdout)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", width)))
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		text = strings.TrimRight(fill(text, width), "\n") + "\n"
		if cmd.Runnable() || cmd.HasSubCommands() {
			text += "\n" + cmd.UsageString()
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), text) // nobody is left to hear that help has no reader
	})
}

// listed is a line that begins with spaces and perhaps a word that the rest explains: what follows is aligned to the rest.
var listed = regexp.MustCompile(`^ +(?:\S+ {2,})?`)

// fill breaks text into lines of at most width columns. Lines that follow each other are one paragraph; those that begin with a
// space stay what they are, and are continued below their text where they are too wide. A word wider than that is not broken.
func fill(text string, width int) string {
	var out, paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			out = append(out, fillLine("", "", strings.Join(paragraph, " "), width)...)
		}
		paragraph = nil
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		head := listed.FindString(line)
		switch {
		case line == "":
			flush()
			out = append(out, "")
		case head == "":
			paragraph = append(paragraph, line)
		case utf8.RuneCountInString(line) <= width:
			flush()
			out = append(out, line)
		default:
			flush()
			out = append(out, fillLine(head, strings.Repeat(" ", utf8.RuneCountInString(head)), line[len(head):], width)...)
		}
	}
	flush()
	return strings.Join(out, "\n") + "\n"
}

// fillLine breaks words into lines, the first after head, the others after indent.
func fillLine(head, indent, words string, width int) (out []string) {
	line, empty := head, true
	for word := range strings.FieldsSeq(words) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out = append(out, line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return append(out, line)
}
