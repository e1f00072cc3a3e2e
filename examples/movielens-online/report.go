package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/monolith-go/monolith/job"
)

// table writes what models did, a line each.
type table struct {
	out   io.Writer
	begun bool
	err   error // the first
}

func (t *table) row(name string, examples int64, m job.Scores, prefix string) {
	if !t.begun {
		t.begun = true
		t.printf("%-36s %9s %8s %8s\n", "", "examples", "auc", "log loss")
	}
	t.printf("%-36s %9d %8.4f %8.4f\n", name, examples, m[prefix+"auc"], m[prefix+"log_loss"])
}

func (t *table) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); t.err == nil {
		t.err = err
	}
}

// report is the command report: it compares what was published with what the newest snapshot has counted, and the frozen
// model with the one that learnt on. That a rating is missing, or counted twice, is an error.
func report(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("movielens-online report", flag.ExitOnError)
	dir := flags.String("dir", "runs/movielens", "folder of the job, for its newest snapshot")
	published := flags.Int64("published", 0, "number of ratings that were published")
	frozenFile := flags.String("frozen", "", "what monolith eval --json has written about the frozen model")
	onlineFile := flags.String("online", "", "what monolith train --json has written at the end")
	_ = flags.Parse(args) // it exits
	frozen, err := outcomeOf(*frozenFile)
	if err != nil {
		return err
	}
	online, err := outcomeOf(*onlineFile)
	if err != nil {
		return err
	}
	s, err := job.InspectSnapshot(ctx, *dir)
	if err != nil {
		return err
	}
	trained := int64(0)
	var each []int64
	for _, p := range s.Positions["kafka"] {
		trained += p.Rows
		each = append(each, p.Rows)
	}
	slices.Sort(each)
	t := table{out: out}
	t.row("later ratings, model frozen", frozen.Examples, frozen.Metrics, "")
	t.row("later ratings, cluster learning on", trained, online.Metrics, "progressive_")
	t.printf("published %d, trained %d, by partition %d\n", *published, trained, each)
	if t.err == nil && trained != *published {
		return fmt.Errorf("%d ratings were published and %d trained", *published, trained)
	}
	return t.err
}

// outcome is the part of a command's result that is of interest here.
type outcome struct {
	Examples int64      `json:"examples"`
	Metrics  job.Scores `json:"metrics"`
}

// outcomeOf reads the object that a command has written for --json.
func outcomeOf(path string) (outcome, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return outcome{}, err
	}
	var o struct {
		OK     bool    `json:"ok"`
		Result outcome `json:"result"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return outcome{}, fmt.Errorf("%s: %w", path, err)
	}
	if !o.OK {
		return outcome{}, fmt.Errorf("%s: the command was not successful", path)
	}
	return o.Result, nil
}
