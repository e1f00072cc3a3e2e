package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/ps/psbench"
)

func (a *App) benchPSCommand(out *outcome) *cobra.Command {
	var (
		set  []string
		o    psbench.ShardsOptions
		wait time.Duration
	)
	cmd := &cobra.Command{
		Use:   "ps JOB.yaml",
		Short: "Measure every shard of a running cluster from here",
		Long: `Measure every shard of a job's cluster (ps.addresses, with its token and certificates) from this machine: lookups and pushes of rows with the job's tables
and optimizers, over the streams that workers use; the memory that tables may still take against what they will need; and how fast the disks of the log and of the snapshots
make blocks of 128 KiB durable (written and synced). Run it on each machine that is to have workers.

Shards are listed with the slowest first. The ratio is what a lookup and a push of a row take, to the same of the shard in the middle.

The model does not change: rows that are pushed lie in tables of the benchmark's own, which are gone when it ends. They take memory meanwhile, and the processors' time of the
shards. While workers train on them the command refuses, unless --while-training is given: then they are slower for as long as it takes.

What the tables will need is known where retention.table_memory says it, or --total-rows. The exit code is 4 when a shard lacks memory, has a disk that cannot be written to, or is
slower than --slowest.`,
		Example: `  monolith bench ps job.yaml
  monolith bench ps job.yaml --connections 4 --slowest 1.5
  monolith bench ps job.yaml --while-training --rounds 3 --json`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "bench ps"
			if a.Ops.BenchShards == nil {
				return errMissing
			}
			switch {
			case o.Rounds < 1 || o.Connections < 1 || o.Batch < 1 || o.IDs < 1:
				return &usageError{message: "--rounds, --connections, --batch and --ids must be above 0"}
			case o.Each <= 0:
				return &usageError{message: fmt.Sprintf("--each is %v, must be above 0", o.Each)}
			case o.Rows < 0 || o.Slowest < 0:
				return &usageError{message: "--total-rows and --slowest must be at least 0"}
			}
			how, err := a.asking(wait)
			if err != nil {
				return err
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			rates, err := a.Ops.BenchShards(cmd.Context(), cfg, how, o)
			if err != nil {
				return err
			}
			out.result, out.text = rates, func(w io.Writer) error { return writeShardRates(w, rates) }
			findings := 0
			for i := range rates {
				findings += len(rates[i].Findings)
			}
			if findings > 0 {
				return &answerError{fmt.Sprintf("%s about the shards", plural(findings, "finding"))}
			}
			return nil
		},
	}
	addSet(cmd, &set)
	addWait(cmd, &wait)
	flags := cmd.Flags()
	flags.IntVar(&o.Connections, "connections", 1, "how many `streams` call a shard at once, each as a worker")
	flags.IntVar(&o.Rounds, "rounds", 9, "how many `times` the shards take turns")
	flags.DurationVar(&o.Each, "each", 100*time.Millisecond, "how `long` each is measured in a round, twice: looking up and pushing")
	flags.IntVar(&o.Batch, "batch", 2000, "`rows` of a call, of all tables together")
	flags.IntVar(&o.IDs, "ids", 100_000, "how many `rows` the benchmark makes on each shard")
	flags.Int64Var(&o.Rows, "total-rows", 0, "how many `rows` the tables are to hold on all shards together; 0: what retention.table_memory says")
	flags.Float64Var(&o.Slowest, "slowest", 0, "the `ratio` above which a shard is too slow; 0: any is fast enough")
	flags.BoolVar(&o.Busy, "while-training", false, "measure beside workers that train")
	return cmd
}

func writeShardRates(w io.Writer, rates []psbench.ShardRates) error {
	ms := func(seconds float64) string { return strconv.FormatFloat(1000*seconds, 'f', 2, 64) }
	perSecond := func(rate float64) string { return ui.Count(int64(rate)) }
	known := func(n int64) string {
		if n < 0 {
			return "?"
		}
		return ui.Bytes(n)
	}
	rows := [][]string{{"SHARD", "ADDRESS", "RATIO", "LOOKUP ROWS/S", "P50 MS", "P99", "MAX", "PUSH ROWS/S", "P50 MS", "P99", "MAX", "ROWS", "MEMORY", "NEEDS", "FREE"}}
	disks := [][]string{{"SHARD", "DISK", "MB/S", "P50 MS", "P99", "MAX", "FOLDER"}}
	var findings []string
	for i := range rates {
		r := &rates[i]
		shard := strconv.Itoa(r.Shard)
		rows = append(rows, []string{
			shard, r.Addr, fmt.Sprintf("%.2f", r.Ratio), perSecond(r.Lookup.Rate), ms(r.Lookup.P50), ms(r.Lookup.P99), ms(r.Lookup.Max),
			perSecond(r.Push.Rate), ms(r.Push.P50), ms(r.Push.P99), ms(r.Push.Max), ui.Count(r.Rows), ui.Bytes(r.Bytes), known(r.Need), known(r.Room),
		})
		for _, d := range r.Disks {
			disks = append(disks, []string{shard, d.Of, fmt.Sprintf("%.1f", d.Rate/1e6), ms(d.P50), ms(d.P99), ms(d.Max), d.Dir})
		}
		for _, f := range r.Findings {
			findings = append(findings, fmt.Sprintf("shard %s at %s: %s", shard, r.Addr, f))
		}
	}
	if err := ui.Table(w, rows, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14); err != nil {
		return err
	}
	if len(disks) > 1 {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := ui.Table(w, disks, 0, 2, 3, 4, 5); err != nil {
			return err
		}
	}
	for _, f := range findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	return nil
}
