package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/sinks/kafkasink"
)

// publishing says what is published where.
type publishing struct {
	data, broker, topic string
	partitions          int
	rate                int // ratings a second; 0: all at once
}

// publishSlowly is the command publish: it sends the later ratings as if they happened now.
func publishSlowly(ctx context.Context, args []string, out io.Writer) error {
	var p publishing
	flags := flag.NewFlagSet("movielens-online publish", flag.ExitOnError)
	flags.StringVar(&p.data, "data", os.Getenv("MONOLITH_DATA"), "folder that holds datasets/ml1m-bin")
	flags.StringVar(&p.broker, "broker", "", "host:port of a Kafka broker")
	flags.StringVar(&p.topic, "topic", "ratings", "topic to create")
	flags.IntVar(&p.partitions, "partitions", 1, "number of partitions, to which ratings are dealt in turn")
	flags.IntVar(&p.rate, "rate", 0, "ratings a second; 0: all at once")
	_ = flags.Parse(args) // it exits
	if p.data == "" || p.broker == "" || p.partitions < 1 || p.rate < 0 {
		return errors.New("publish needs -data (or MONOLITH_DATA) and -broker, a partition or more, and a rate from 0")
	}
	return publish(ctx, p, out)
}

// publish creates the topic and sends the later ratings to it, line by line, in the order of their time stamps. It writes
// a line to out for what is acknowledged, as it goes.
func publish(ctx context.Context, o publishing, out io.Writer) error {
	records, err := laterRatings(o)
	if err != nil {
		return err
	}
	kafka := kafkasink.Options{Brokers: []string{o.broker}, Topic: o.topic}
	if err := kafkasink.CreateTopic(ctx, kafka, kafkasink.Topic{Partitions: o.partitions}); err != nil {
		return err
	}
	p, err := kafkasink.NewProducer(kafka)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // what was acknowledged is there
	const perSecond = 5
	chunk := len(records)
	if o.rate > 0 {
		chunk = max(1, o.rate/perSecond)
	}
	due := time.NewTicker(time.Second / perSecond)
	defer due.Stop()
	for sent := 0; sent < len(records); {
		n := min(chunk, len(records)-sent)
		if err := p.Produce(ctx, records[sent:sent+n]...); err != nil {
			return err
		}
		if sent += n; o.rate > 0 && sent < len(records) {
			select {
			case <-due.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if _, err := fmt.Fprintln(out, "published", sent); err != nil {
			return err
		}
	}
	return nil
}

// laterRatings reads the ratings that come after the history.
func laterRatings(o publishing) ([]kafkasink.Record, error) {
	f, err := os.Open(filepath.Join(o.data, "datasets", "ml1m-bin", "val.tsv.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	lines := bufio.NewScanner(z)
	lines.Scan() // the header
	var records []kafkasink.Record
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Split(line, "\t")
		at, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q has no time stamp: %w", f.Name(), line, err)
		}
		records = append(records, kafkasink.Record{
			Key: []byte(fields[0]), Value: []byte(line), Time: time.Unix(at, 0), Partition: len(records) % o.partitions,
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return records, nil
}
