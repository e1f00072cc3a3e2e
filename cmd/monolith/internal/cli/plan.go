package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job"
)

func (a *App) planCommand(out *outcome) *cobra.Command {
	var (
		set    []string
		format string
	)
	formats := []string{"text", "dot", "mermaid", "json", "model"}
	renders := map[string]func(job.Plan) string{"text": job.Plan.Text, "dot": job.Plan.DOT, "mermaid": job.Plan.Mermaid, "json": job.Plan.JSON}
	cmd := &cobra.Command{
		Use:   "plan JOB.yaml",
		Short: "Show the graph a job runs",
		Long: `Build and check the graph of a job and show it, without reading any data.

text is for people, dot for Graphviz, mermaid for Markdown pages, json for programs. model is the graph of the model in place of that of
the job, as JSON: its features, tables, operators, rules and heads, which a job reads again with model: {graph: FILE}.`,
		Example: `  monolith plan job.yaml
  monolith plan job.yaml --format dot | dot -Tsvg > graph.svg
  monolith plan job.yaml --format mermaid
  monolith plan job.yaml --format model > model.json`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(formats, format) {
				return &usageError{fmt.Sprintf("--format is %q, not one of %s", format, strings.Join(formats, ", ")), nearest.Name(format, formats)}
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			if a.Ops.Plan == nil || a.Ops.Model == nil {
				return errMissing
			}
			var text, graph string
			if render := renders[format]; render != nil {
				plan, err := a.Ops.Plan(cfg)
				if err != nil {
					return err
				}
				text, graph = render(plan), plan.JSON()
			} else {
				written, err := a.Ops.Model(cfg)
				if err != nil {
					return err
				}
				text, graph = string(written), string(written)
			}
			text = strings.TrimSuffix(text, "\n") + "\n"
			out.result = map[string]any{"format": format, "text": text}
			if json.Valid([]byte(graph)) {
				out.result = json.RawMessage(graph)
			}
			out.text = func(w io.Writer) error {
				_, err := io.WriteString(w, text)
				return err
			}
			return nil
		},
	}
	addSet(cmd, &set)
	cmd.Flags().StringVar(&format, "format", "text", "`how` to write it: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
