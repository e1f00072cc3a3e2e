package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

func (a *App) planCommand(out *outcome) *cobra.Command {
	var (
		set    []string
		format string
		runner string
	)
	formats := []string{"text", "dot", "mermaid", "json", "model"}
	renders := map[string]func(job.Plan) string{"text": job.Plan.Text, "dot": job.Plan.DOT, "mermaid": job.Plan.Mermaid, "json": job.Plan.JSON}
	cmd := &cobra.Command{
		Use:        "plan JOB.yaml",
		SuggestFor: []string{"graph", "explain"},
		Short:      "Show the graph a job runs",
		Long: `Build and check the graph of a job and show it, without reading any data.

text is for people, dot for Graphviz, mermaid for Markdown pages, json for programs. model is the graph of the model in place of that of
the job, as JSON: its features, tables, operators, rules and heads, which a job reads again with model: {graph: FILE}.`,
		Example: `  monolith plan job.yaml
  monolith plan job.yaml --format dot | dot -Tsvg > graph.svg
  monolith plan job.yaml --format mermaid
  monolith plan job.yaml --runner=flink            # and how Flink cuts it
  monolith plan job.yaml --format model > model.json`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(formats, format) {
				return &usageError{fmt.Sprintf("--format is %q, not one of %s", format, strings.Join(formats, ", ")), nearest.Name(format, formats)}
			}
			cfg, err := a.load(args[0], a.onRunner(set, runner))
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
			if runner != "" && (format == "text" || format == "json") {
				if a.Ops.Cut == nil {
					return errMissing
				}
				cut, err := a.Ops.Cut(cmd.Context(), cfg)
				if err != nil {
					return err
				}
				if text, graph, err = withCut(format, text, graph, cut); err != nil {
					return err
				}
			}
			text = strings.TrimSuffix(text, "\n") + "\n"
			out.result = map[string]any{"format": format, "text": text}
			if json.Valid([]byte(graph)) {
				out.result = json.RawMessage(graph)
			}
			out.text = func(w io.Writer) error {
				if format == "text" && !a.utf8() {
					text = inASCII(text)
				}
				_, err := io.WriteString(w, text)
				return err
			}
			return nil
		},
	}
	addSet(cmd, &set)
	addRunner(cmd, &runner)
	cmd.Flags().StringVar(&format, "format", "text", "`how` to write it: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// inASCII draws a plan for terminals that have ASCII alone.
func inASCII(text string) string {
	text = strings.NewReplacer("─", "-", "│", "|", "╫", "#", "→", "->", "←", "<-", "…", "...").Replace(text)
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x2500 && r < 0x2580: // corners and crossings of lines
			return '+'
		case r > unicode.MaxASCII:
			return '?'
		}
		return r
	}, text)
}

// withCut adds how a runner cuts a plan to its text, or as key cut to its JSON.
func withCut(format, text, graph string, cut *pipeline.Cut) (_, _ string, err error) {
	b, err := json.Marshal(cut)
	if err != nil {
		return "", "", err
	}
	if at := strings.LastIndexByte(graph, '}'); at >= 0 {
		graph = strings.TrimRight(graph[:at], " \n") + `,"cut":` + string(b) + "}"
	}
	if format == "text" {
		return strings.TrimSuffix(text, "\n") + "\n\n" + cut.Text(), graph, nil
	}
	var out bytes.Buffer
	err = json.Indent(&out, []byte(graph), "", "  ")
	return out.String(), graph, err
}
