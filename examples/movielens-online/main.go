// Command movielens-online trains on the history of MovieLens-1M, then publishes later ratings to Kafka in the order in
// which they happened and lets the same model go on learning from them, and compares it with the model that stopped. See
// the README beside it.
package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/testbed/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

func main() {
	var o options
	flag.StringVar(&o.data, "data", os.Getenv("MONOLITH_DATA"), "folder that holds datasets/ml1m-bin")
	flag.StringVar(&o.dir, "dir", "runs/movielens", "folder for snapshots")
	flag.StringVar(&o.broker, "broker", "", "host:port of a Kafka broker; empty starts one in this process")
	flag.StringVar(&o.jobs, "jobs", "examples/movielens-online", "folder of batch.yaml and online.yaml")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	r, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "movielens-online:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
	fmt.Printf("%-34s %9s %8s %8s\n", "", "examples", "auc", "log loss")
	fmt.Printf("%-34s %9d %8.4f %8.4f\n", "history, before each was trained on", r.history.Examples, r.history.Metrics["progressive_auc"], r.history.Metrics["progressive_log_loss"])
	fmt.Printf("%-34s %9d %8.4f %8.4f\n", "later ratings, model frozen", r.frozen.Examples, r.frozen.Metrics["auc"], r.frozen.Metrics["log_loss"])
	fmt.Printf("%-34s %9d %8.4f %8.4f\n", "later ratings, model learning on", r.online.Examples, r.online.Metrics["progressive_auc"], r.online.Metrics["progressive_log_loss"])
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
	if r.frozen, err = job.Evaluate(ctx, batch, job.EvalOptions{RunOptions: opts, Snapshot: r.history.Snapshot}); err != nil {
		return nil, err
	}
	if err := publish(ctx, o); err != nil {
		return nil, err
	}
	r.online, err = job.Run(ctx, online, opts)
	return &r, err
}

// publish sends the later ratings to the topic, line by line, in the order of their time stamps.
func publish(ctx context.Context, o options) (err error) {
	kafka := kafkasink.Options{Brokers: []string{o.broker}, Topic: "ratings"}
	if err := kafkasink.CreateTopic(ctx, kafka, kafkasink.Topic{Partitions: 1}); err != nil {
		return err
	}
	p, err := kafkasink.NewProducer(kafka)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // what was acknowledged is there
	f, err := os.Open(filepath.Join(o.data, "datasets", "ml1m-bin", "val.tsv.gz"))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(z)
	lines.Scan() // the header
	var records []kafkasink.Record
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Split(line, "\t")
		at, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %q has no time stamp: %w", f.Name(), line, err)
		}
		records = append(records, kafkasink.Record{Key: []byte(fields[0]), Value: []byte(line), Time: time.Unix(at, 0)})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return p.Produce(ctx, records...)
}
