// Command movielens-online trains on the history of MovieLens-1M, then publishes later ratings to Kafka in the order in
// which they happened and lets the same model continue learning from them, and compares it with the model that stopped. See
// the README beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "movielens-online:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// command runs the whole example, or the part of it that the first argument names: cluster.sh puts them together.
func command(ctx context.Context, args []string, out io.Writer) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if len(args) > 0 {
		switch args[0] {
		case "broker":
			return serveBroker(ctx, args[1:], out, log)
		case "publish":
			return publishSlowly(ctx, args[1:], out)
		case "report":
			return report(ctx, args[1:], out)
		}
	}
	o := options{log: log}
	flags := flag.NewFlagSet("movielens-online [broker|publish|report]", flag.ExitOnError)
	flags.StringVar(&o.data, "data", os.Getenv("MONOLITH_DATA"), "folder that holds datasets/ml1m-bin")
	flags.StringVar(&o.dir, "dir", "runs/movielens", "folder for snapshots")
	flags.StringVar(&o.broker, "broker", "", "host:port of a Kafka broker; empty starts one in this process")
	flags.StringVar(&o.jobs, "jobs", "examples/movielens-online", "folder of batch.yaml and online.yaml")
	_ = flags.Parse(args) // it exits
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? The parts are broker, publish and report", flags.Arg(0))
	}
	r, err := run(ctx, o)
	if err != nil {
		return err
	}
	t := table{out: out}
	t.row("history, before each was trained on", r.history.Examples, r.history.Metrics, "progressive_")
	t.row("later ratings, model frozen", r.frozen.Examples, r.frozen.Metrics, "")
	t.row("later ratings, model learning on", r.online.Examples, r.online.Metrics, "progressive_")
	return t.err
}

type options struct {
	data, dir, broker, jobs string
	log                     *slog.Logger
}

type results struct {
	history *job.TrainResult
	frozen  *job.EvalResult
	online  *job.TrainResult
}

func run(ctx context.Context, o options) (*results, error) {
	if o.data == "" {
		return nil, fmt.Errorf("name the folder of the data sets with -data or MONOLITH_DATA")
	}
	if o.broker == "" {
		b, err := broker.Start(broker.Options{Logger: o.log})
		if err != nil {
			return nil, err
		}
		defer b.Close() //nolint:errcheck // it kept everything in memory
		o.broker = b.Addrs()[0]
	}
	env := append(os.Environ(), "MONOLITH_DATA="+o.data, "MOVIELENS_RUN="+o.dir, "MOVIELENS_BROKER="+o.broker)
	load := func(name string) (*job.Config, error) {
		return job.Load(filepath.Join(o.jobs, name), job.LoadOptions{Env: env})
	}
	batch, err := load("batch.yaml")
	if err != nil {
		return nil, err
	}
	online, err := load("online.yaml")
	if err != nil {
		return nil, err
	}
	opts := job.RunOptions{Logger: o.log}
	var r results
	training := *batch
	training.Eval.Source = nil // the frozen model is evaluated below
	if r.history, err = job.Run(ctx, &training, opts); err != nil {
		return nil, err
	}
	if r.frozen, err = job.Evaluate(ctx, batch, job.EvalOptions{Options: opts, Snapshot: r.history.Snapshot}); err != nil {
		return nil, err
	}
	if err := publish(ctx, publishing{data: o.data, broker: o.broker, topic: "ratings", partitions: 1}, io.Discard); err != nil {
		return nil, err
	}
	r.online, err = job.Run(ctx, online, opts)
	return &r, err
}
