package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

func (a *App) initCommand(out *outcome) *cobra.Command {
	var (
		set     []string
		label   string
		file    string
		name    string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:        "init SOURCE",
		SuggestFor: []string{"new", "create"},
		Short:      "Write a job for a source",
		Long: `Look into a source and write a job file that trains on it, with comments on what is guessed. Nothing else is changed.

It scales numbers, chooses batch, epochs, early stop and what is held out, and leaves out columns that tell the label or
never repeat. Each comment has the figure behind it. docs/init.md has the rules.

SOURCE is data files or a pattern, kafka://host:port/topic, or synthetic, as with inspect. What a column means nobody can tell from
its values alone: look through the features and the label before you train.`,
		Example: `  monolith init ratings.csv > ratings.yaml
  monolith init 'clicks/part-*.tfrecord.gz' --label clicked --out clicks.yaml
  monolith init kafka://localhost:9092/ratings --out ratings.yaml`,
		Args: exactly("a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := args[0]
			switch {
			case isJobFile(target):
				return &usageError{message: target + " is a job file already; init makes one from data: " + cmd.Use}
			case timeout <= 0:
				return &usageError{message: fmt.Sprintf("--timeout is %v, must be above 0", timeout)}
			case a.Ops.Propose == nil:
				return errMissing
			}
			if isDir(target) && !isEmptyOfSnapshots(target) {
				is := "a folder of snapshots, not of data"
				if entries, err := os.ReadDir(target); err == nil && len(entries) == 0 {
					is = "an empty folder; name files of data, or a pattern for them"
				}
				return fmt.Errorf("%q is %s: %w", target, is, pipeline.ErrConfig)
			}
			p, err := a.Ops.Propose(cmd.Context(), target, job.ProposeOptions{
				Options:     job.InspectOptions{Logger: a.logger.Load(), Timeout: timeout},
				LoadOptions: job.LoadOptions{Set: set, Env: a.Env}, Label: label, Name: name,
			})
			if err != nil {
				return err
			}
			for _, n := range p.Notes {
				a.notice(n)
			}
			out.result = p
			if file == "" {
				out.text = func(w io.Writer) error {
					_, err := io.WriteString(w, p.Job)
					return err
				}
				return nil
			}
			if err := writeNew(file, p.Job); err != nil {
				return err
			}
			out.text = func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is written, from %s. Look through it, then: monolith check %s && monolith train %s\n", file, plural(int(p.Read), "record"), file, file)
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&label, "label", "", "`column` to predict; default: one that looks like it")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the job; default: after the source")
	cmd.Flags().StringVarP(&file, "out", "o", "", "write the job to this `file`, which must not be there yet; default: standard output")
	addSet(cmd, &set)
	addTimeout(cmd, &timeout)
	return cmd
}

// writeNew writes a file that must not be there yet: it may have been edited since.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return &usageError{message: path + " is there already; name another file with --out, or remove it"}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, pipeline.ErrUnavailable)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
