package cli_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
)

// TestHelpFitsTheScreen asks for the help of every command and page: no line is wider than 80 columns, but for one that is a
// single word, and every word of the long text is there.
func TestHelpFitsTheScreen(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`^  MONOLITH_\S+ +\S+$`) // a name and its key: both are copied
	var ask func(cmd *cobra.Command, args ...string)
	ask = func(cmd *cobra.Command, args ...string) {
		var stdout, stderr bytes.Buffer
		app := &cli.App{Stdout: &stdout, Stderr: &stderr}
		if code := app.Run(t.Context(), append([]string{"help"}, args...)); code != 0 || stderr.Len() > 0 {
			t.Fatalf("help %s: exit code %d: %s", args, code, &stderr)
		}
		text := stdout.String()
		for line := range strings.SplitSeq(text, "\n") {
			if utf8.RuneCountInString(line) > 80 && len(strings.Fields(line)) > 1 && !names.MatchString(line) {
				t.Errorf("help %s: wider than 80 columns: %q", args, line)
			}
		}
		words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		if long := words(cmd.Long); !strings.Contains(words(text), long) {
			t.Errorf("help %s does not say %q:\n%s", args, long, text)
		}
		for _, c := range cmd.Commands() {
			ask(c, append(args, c.Name())...)
		}
	}
	ask(cli.Command())
}
