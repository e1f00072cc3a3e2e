package cli

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/nearest"
)

// benchmark is a command below `monolith bench`. What it runs is of the same name in [Ops].
type benchmark struct {
	name, short, long string
	// with are the programs that it compares with where they are installed; see [bench.Options].With.
	with []string
}

// benchmarks are all of them, a file each.
func benchmarks() []benchmark {
	return []benchmark{benchGemm(), benchStep(), benchQueues(), benchPredict(), benchExport(), benchServe(), benchSize(), benchFrappe(), benchProcs(), benchMonth(), benchTable(), benchLarge(), benchWire(), benchWAL(), benchSnapshot()}
}

func (a *App) benchCommand(out *outcome) *cobra.Command {
	root := &cobra.Command{
		Use:   "bench NAME",
		Short: "Measure this machine, side by side with other programs",
		Long: `Measure what a part of this program does on this machine, and others beside it where they are installed.

Candidates take turns in short slices of one run. A ratio is the median over rounds of ours to the best of theirs; the control is our second
measurement in a round to our first, so that a ratio that is as near to 1 as the control means nothing. Other work on the machine makes every
figure worse, ratios less than rates.`,
		Example: `  monolith bench wire
  monolith bench wire --json --rounds 21
  monolith bench ps job.yaml          # every shard of a running cluster`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			names := []string{"ps"}
			for _, b := range benchmarks() {
				names = append(names, b.name)
			}
			return &usageError{fmt.Sprintf("unknown benchmark %q", args[0]), nearest.Name(args[0], names)}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, b := range benchmarks() {
		root.AddCommand(a.benchOf(out, b))
	}
	root.AddCommand(a.benchPSCommand(out))
	return root
}

func (a *App) benchOf(out *outcome, b benchmark) *cobra.Command {
	var o bench.Options
	var only string
	cmd := &cobra.Command{
		Use:     b.name,
		Short:   b.short,
		Long:    b.long,
		Example: "  monolith bench " + b.name + "\n  monolith bench " + b.name + " --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			run := a.Ops.Bench[b.name]
			if run == nil {
				return errMissing
			}
			switch {
			case o.Rounds < 1:
				return &usageError{message: fmt.Sprintf("--rounds is %d, must be above 0", o.Rounds)}
			case o.Each <= 0:
				return &usageError{message: fmt.Sprintf("--each is %v, must be above 0", o.Each)}
			case o.Rows < 0:
				return &usageError{message: fmt.Sprintf("--rows is %d, must be at least 0", o.Rows)}
			}
			for name := range o.With {
				if !slices.Contains(b.with, name) {
					return &usageError{fmt.Sprintf("--with %s: bench %s knows %s", name, b.name, strings.Join(b.with, ", ")), nearest.Name(name, b.with)}
				}
			}
			if only != "" {
				var err error
				if o.Only, err = regexp.Compile(only); err != nil {
					return &usageError{message: "--only: " + err.Error()}
				}
			}
			results, err := run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if results == nil {
				results = []bench.Result{}
			}
			out.command, out.result = "bench "+b.name, results
			out.text = func(w io.Writer) error {
				_, err := io.WriteString(w, bench.Text(results))
				return err
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Rounds, "rounds", 9, "how many `times` the candidates take turns")
	flags.DurationVar(&o.Each, "each", 100*time.Millisecond, "how `long` each is measured in a round")
	flags.IntVar(&o.Rows, "rows", 0, "`rows` of the table, for what has one; 0: the benchmark's own")
	flags.StringVar(&only, "only", "", "measure what this `pattern` matches of the names")
	flags.StringVar(&o.Dir, "dir", "", "`folder` for files, for what writes some; default that for temporary files")
	if len(b.with) > 0 {
		flags.StringToStringVar(&o.With, "with", nil, "`program=file`: where it is, of "+strings.Join(b.with, ", ")+"; default what PATH has")
	}
	return cmd
}
