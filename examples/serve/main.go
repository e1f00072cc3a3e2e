// Command serve trains a model on a stream whose tastes change, and answers requests with the same model while it learns. See the README beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/ps/snapshot"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// command runs the example, or asks one that runs: go run ./examples/serve ask user=7 item=soup.
func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "ask" {
		return ask(ctx, args[1:], out)
	}
	o := options{out: out, every: time.Second, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	flags.StringVar(&o.dir, "dir", "runs/serve", "folder for everything that is written")
	flags.StringVar(&o.job, "job", "examples/serve/job.yaml", "the job `file`")
	flags.StringVar(&o.http, "http", "127.0.0.1:8501", "`address` to answer at")
	flags.IntVar(&o.rate, "rate", 1000, "records a second")
	flags.IntVar(&o.seasons, "seasons", 0, "end after so many seasons; 0: when stopped")
	_ = flags.Parse(args) // it exits
	return run(ctx, o)
}

type options struct {
	dir, job, http string
	rate, seasons  int
	every          time.Duration // between two questions, and between two looks for a snapshot or an export
	out            io.Writer
	log            *slog.Logger
	// followed, if not nil, is called when the answers of the server at an address have followed a season.
	followed func(ctx context.Context, server string, now season) error
}

// run starts the parts, which know each other by what they would over a network: the topic, the folders of snapshots and of exports, and the server's address.
func run(ctx context.Context, o options) (err error) {
	if o.rate < 1 {
		return fmt.Errorf("the rate is %d records a second, and must be at least 1", o.rate)
	}
	kafka, err := broker.Start(broker.Options{Dir: filepath.Join(o.dir, "broker"), Sync: true, Topics: map[string]int{topic: 1}, Logger: o.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.Close()) }()
	cfg, err := job.Load(o.job, job.LoadOptions{Env: append(os.Environ(), "SHOP_RUN="+filepath.Join(o.dir, "shop"), "SHOP_BROKER="+kafka.Addrs()[0])})
	if err != nil {
		return err
	}
	exports := filepath.Join(o.dir, "models", model)

	// A part that fails, or is done, ends all; then each completes what it has begun.
	live, end := context.WithCancel(ctx)
	defer end()
	complete := context.WithoutCancel(ctx)
	var (
		parts    sync.WaitGroup
		faults   = make(chan error, 5) // one a part
		exported = make(chan struct{}) // closed when there is something to serve
		ready    = make(chan string, 1)
		clicks   stream
	)
	part := func(name string, run func() error) {
		parts.Go(func() {
			defer end()
			if err := run(); err != nil {
				faults <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	part("stream", func() error { return clicks.publish(live, kafka.Addrs()[0], o.rate) })
	part("train", func() error {
		_, err := job.Run(complete, cfg, job.RunOptions{Logger: o.log, Drain: live.Done(), Observe: clicks.observe})
		return err
	})
	part("export", func() error { return export(live, cfg.Dir, exports, exported, o) })
	part("serve", func() error {
		select {
		case <-exported:
		case <-live.Done():
			return nil
		}
		return job.ServeModels(complete, job.ServeModelsOptions{
			Exports: []string{exports}, Poll: o.every, HTTP: o.http, Logger: o.log, Drain: live.Done(), Ready: func(http, _ string) { ready <- http },
		})
	})
	part("ask", func() error {
		select {
		case server := <-ready:
			return watch(live, o, &clicks, server)
		case <-live.Done():
			return nil
		}
	})
	parts.Wait()
	close(faults)
	for fault := range faults {
		err = errors.Join(err, fault)
	}
	return err
}

// export writes each newer snapshot of a job's dir to a folder of exports, until ctx ends; exported is closed behind the first. One that cannot be written is logged, and the
// next is tried: what is served meanwhile stays.
func export(ctx context.Context, dir, exports string, exported chan<- struct{}, o options) error {
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		entries, err := snapshot.List(filepath.Join(dir, "snapshots"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		newest := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Err == nil })
		if newest < 0 || entries[newest].ID == last {
			continue
		}
		of := job.ExportModelOptions{Snapshot: entries[newest].Path, Format: "native", Dir: exports, Keep: 3, Logger: o.log}
		if _, err := job.ExportModel(context.WithoutCancel(ctx), of); err != nil {
			o.log.Warn("a snapshot was not exported", "snapshot", entries[newest].Path, "err", err)
			continue
		}
		if last == 0 {
			close(exported)
		}
		last = entries[newest].ID
	}
}

// watch asks the server again and again, and turns the season once the answers have followed it.
func watch(ctx context.Context, o options, clicks *stream, server string) error {
	c := client{"http://" + server}
	say := func(text string, args ...any) error {
		_, err := fmt.Fprintf(o.out, text+"\n", args...)
		return err
	}
	if err := say("serving at %s; ask too: go run ./examples/serve ask -server http://%s user=7 item=soup", server, server); err != nil {
		return err
	}
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for number := 1; ; number++ {
		now, began := clicks.season(), time.Now()
		if err := say("\nit is %s: people click on %s, and no longer on %s", now, now.liked(), now.disliked()); err != nil {
			return err
		}
		for {
			liked, disliked := instance{"user": 7, "item": now.liked()}, instance{"user": 7, "item": now.disliked()}
			answers, err := c.predict(ctx, liked, disliked)
			version := ""
			if err == nil {
				version, err = c.version(ctx)
			}
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if err := say("%5.1f s  version %-4s  %s %.2f  %s %.2f", time.Since(began).Seconds(), version, now.liked(), answers[0], now.disliked(), answers[1]); err != nil {
				return err
			}
			if answers[0] > 0.6 && answers[1] < 0.4 {
				break
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		if o.followed != nil {
			if err := o.followed(ctx, c.server, now); err != nil {
				return err
			}
		}
		if number == o.seasons {
			return nil
		}
		clicks.turn()
	}
}
