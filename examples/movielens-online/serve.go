package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"github.com/monolith-go/monolith/internal/broker"
)

// serveBroker is the command broker: a Kafka broker in a process of its own, until the context ends. It writes its
// address.
func serveBroker(ctx context.Context, args []string, out io.Writer, log *slog.Logger) error {
	o := broker.Options{Logger: log}
	flags := flag.NewFlagSet("movielens-online broker", flag.ExitOnError)
	flags.IntVar(&o.Port, "port", 0, "port on 127.0.0.1; 0: any that is free")
	_ = flags.Parse(args) // it exits
	b, err := broker.Start(o)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, b.Addrs()[0]); err != nil {
		return err
	}
	<-ctx.Done()
	return b.Close()
}
