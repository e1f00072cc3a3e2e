package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/local"
)

// onExecutors are keys of a job whose executors are in other processes.
var onExecutors = []string{
	"runner=portable", "beam.endpoint=127.0.0.1:1", "beam.environment=process", "beam.environment_config=/bin/monolith", "ps.addresses=127.0.0.1:1,127.0.0.1:2",
}

// TestPredictionsElsewhere: executors that know the recipe alone, as those of other processes do, write what an evaluation here predicts, once each: where one dies others continue, those that are
// to drain are ended, and one that reads everything again adds nothing. How many rows there are the place says, not they.
func TestPredictionsElsewhere(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	want, _ := w.evaluated()
	keys, err := job.SetTarget(w.path("new-*.csv"), nil)
	if err != nil {
		t.Fatal(err)
	}
	set := slices.Concat(keys, onExecutors, []string{predictFields, fmt.Sprintf("predict.to={tsv: {dir: %q, rows_per_file: 1000}}", w.path("out"))})
	drain, died := make(chan struct{}), errors.New("an executor died")
	for _, life := range []struct {
		name string
		run  job.Runner
		err  error
		is   func(r *job.Predicted) bool
	}{
		{"dies", func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
			return pipeline.RunStats{}, errors.Join(executor(ctx, t, s, 1, 7000), died)
		}, died, nil},
		{"is to drain", func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
			err := executor(ctx, t, s, 1, 12_000)
			close(drain)
			<-ctx.Done()
			return pipeline.RunStats{Rows: 1}, errors.Join(err, ctx.Err())
		}, nil, func(r *job.Predicted) bool {
			return r.Drained && r.Earlier >= 7000 && r.Rows > r.Earlier && r.Rows < heldFiles*heldRows
		}},
		{"reads twice", func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
			return pipeline.RunStats{Rows: 99}, errors.Join(executor(ctx, t, s, 2, 0), executor(ctx, t, s, 2, 0))
		}, nil, func(r *job.Predicted) bool {
			return !r.Drained && r.Earlier >= 12_000 && r.Earlier < r.Rows && r.Rows == heldFiles*heldRows
		}},
	} {
		options := job.RunOptions{Runners: map[string]job.Runner{"portable": life.run}, Recipes: &job.Recipes{}}
		if life.name == "is to drain" {
			options.Drain = drain
		}
		r, err := w.predict(job.PredictOptions{Options: options}, set...)
		if !errors.Is(err, life.err) || err == nil && !life.is(r) {
			t.Errorf("one that %s: %+v, %v", life.name, r, err)
		}
	}
	w.check("elsewhere", w.predictions("tsv", w.path("out")), want, false)
}

// TestStreamWithAnEndElsewhere: executors that know the recipe alone predict a topic up to where it ended when they were submitted, once each, whatever comes meanwhile and although one dies and another reads everything again; the next
// run predicts what has come.
func TestStreamWithAnEndElsewhere(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"requests": 2, "scores": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	happen := producer(t, bed)
	happen(0, 300)
	happen(1, 200)
	brokers := strings.Join(bed.Addrs(), ", ")
	set := append(slices.Clone(onExecutors),
		fmt.Sprintf("predict.source={kafka: {brokers: [%s], topic: requests, end: latest}}", brokers), "predict.format=jsonl",
		fmt.Sprintf("predict.to={kafka: {brokers: [%s], topic: scores}}", brokers), "predict.fields=[label, position, prediction]")
	died := errors.New("an executor died")
	for _, life := range []struct {
		name          string
		most          []int64 // rows of each executor; 0: all
		err           error
		rows, earlier int64
	}{{"dies", []int64{100}, died, 0, 0}, {"reads twice", []int64{0, 0}, nil, 500, 100}, {"follows later", []int64{0}, nil, 520, 500}} {
		run := func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
			if life.err == nil {
				happen(1, 20) // behind the end
			}
			for _, most := range life.most {
				if err := executor(ctx, t, s, 1, most); err != nil {
					return pipeline.RunStats{}, err
				}
			}
			return pipeline.RunStats{Rows: 99}, life.err
		}
		r, err := w.predict(job.PredictOptions{Options: job.RunOptions{Runners: map[string]job.Runner{"portable": run}, Recipes: &job.Recipes{}}}, set...)
		if !errors.Is(err, life.err) || err == nil && (r.Rows != life.rows || r.Earlier < life.earlier || r.Earlier == r.Rows || r.Drained) {
			t.Errorf("one that %s: %+v, %v; want %d rows, at least %d of them earlier, not all", life.name, r, err, life.rows, life.earlier)
		}
	}
	if got := predictionsIn(t, bed.Addrs(), "scores", 520); len(got) != 520 {
		t.Errorf("%d predictions in the topic, want 520", len(got))
	}
}

// producer appends records to partitions of the topic of requests.
func producer(t *testing.T, bed *broker.Broker) (happen func(partition, n int)) {
	made := 0
	return func(partition, n int) {
		t.Helper()
		var records []broker.Record
		for range n {
			user, item, price, click := clickRow(made)
			records = append(records, broker.Record{Value: fmt.Appendf(nil, `{"user": %q, "item": %d, "price": %g, "click": %d}`, user, item, price, click)})
			made++
		}
		if err := broker.Produce(t.Context(), bed.Addrs(), "requests", partition, broker.Batch{}, records...); err != nil {
			t.Error(err)
		}
	}
}

// executor runs what was submitted as a process would that has nothing but the recipe.
func executor(ctx context.Context, t *testing.T, s job.Submission, workers int, most int64) error {
	b, err := (&job.Recipes{}).Build(ctx, s.Recipe)
	if err != nil {
		return err
	}
	if b.Plan.Hash() != s.Plan.Hash() {
		t.Errorf("plan %s, submitted was %s", b.Plan.Hash(), s.Plan.Hash())
	}
	_, err = local.Run(ctx, b.Plan, pipeline.RunOptions{Workers: workers, Splits: s.Options.Splits, MaxRows: most, Env: b.Env})
	return errors.Join(err, b.Close())
}

// TestPredictionsThatCannotBeElsewhere: what executors in other processes could not do is refused before anything runs, with what to do.
func TestPredictionsThatCannotBeElsewhere(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	runs := job.RunOptions{Recipes: &job.Recipes{}, Runners: map[string]job.Runner{}}
	for _, name := range []string{"portable", "dataflow"} {
		runs.Runners[name] = func(context.Context, job.Submission) (pipeline.RunStats, error) {
			t.Error("it runs")
			return pipeline.RunStats{}, nil
		}
	}
	to := fmt.Sprintf("predict.to={jsonl: %q}", w.path("out"))
	for _, c := range []struct {
		name string
		o    job.PredictOptions
		set  []string
		want string
	}{
		{"a stream", job.PredictOptions{}, append(onExecutors, to, "predict.source={kafka: {brokers: [127.0.0.1:1], topic: t}}", "predict.format=jsonl"), "predict.source.kafka does not end, and executors in other processes cannot be told to: give it an end, such as --set predict.source.kafka.end=latest"},
		{"some examples", job.PredictOptions{MaxExamples: 5}, append(onExecutors, to), "no common count"},
		{"an export", job.PredictOptions{Alone: w.path("exports")}, append(onExecutors, to), "name the job file"},
		{"a relative folder", job.PredictOptions{}, append(onExecutors, "predict.to={jsonl: out}"), `predict.to.jsonl.dir is used in other processes, so "out" must be an absolute path`},
		{"containers", job.PredictOptions{}, append(onExecutors, to, "beam.environment=docker"), "predict.to.jsonl.dir is written in containers that are removed"},
		{"dataflow", job.PredictOptions{}, append(slices.Clone(onDataflow()), to), "take --runner=local, or flink or portable"},
		{"files without an end", job.PredictOptions{Follow: true}, []string{to}, "a source of text ends, and cannot be followed"},
	} {
		cfg, err := w.decode(c.set...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		c.o.Options = runs
		if _, err := job.Predict(t.Context(), cfg, c.o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestPredictFollows: a topic is followed past the end that its section sets, with partitions that it gets meanwhile, until the run is drained; each record is predicted once. The next run, which does
// not follow, ends where the topic does.
func TestPredictFollows(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"requests": 1, "scores": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	happen := producer(t, bed)
	happen(0, 50)
	brokers := strings.Join(bed.Addrs(), ", ")
	set := []string{
		fmt.Sprintf("predict.source={kafka: {brokers: [%s], topic: requests, end: latest, discover_every: 5ms}}", brokers), "predict.format=jsonl",
		fmt.Sprintf("predict.to={kafka: {brokers: [%s], topic: scores, commit_every: 5ms}}", brokers), "predict.fields=[label, position, prediction]",
	}
	// Each is done when so many rows were taken.
	steps := []struct {
		rows int64
		do   func()
	}{
		{50, func() {
			if err := bed.AddPartitions(t.Context(), "requests", 2); err != nil {
				t.Error(err)
			}
			happen(1, 30)
		}},
		{80, func() { happen(0, 20) }},
		{100, nil},
	}
	drain, taken, ended := make(chan struct{}), make(chan int64), make(chan struct{})
	var r *job.Predicted
	cfg := w.config(set...)
	go func() {
		defer close(ended)
		r, err = job.Predict(t.Context(), cfg, job.PredictOptions{Workers: 2, Follow: true, Options: job.RunOptions{Drain: drain, Status: func(s job.Status) {
			select {
			case taken <- s.Examples:
			case <-drain:
			}
		}}})
	}()
	late := time.After(2 * time.Minute)
	for at := 0; at < len(steps); {
		select {
		case n := <-taken:
			if n < steps[at].rows {
				continue
			}
			if do := steps[at].do; do != nil {
				do()
			}
			at++
		case <-ended:
			t.Fatalf("it ended by itself: %+v, %v", r, err)
		case <-late:
			t.Fatalf("step %d of %d is not reached", at, len(steps))
		}
	}
	close(drain)
	<-ended
	if err != nil || !r.Drained || r.Rows != 100 || r.Earlier != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := predictionsIn(t, bed.Addrs(), "scores", 100); len(got) != 100 {
		t.Errorf("%d predictions in the topic, want 100", len(got))
	}
	happen(1, 10)
	if r, err = w.predict(job.PredictOptions{}, set...); err != nil || r.Drained || r.Rows != 110 || r.Earlier != 100 {
		t.Errorf("without following it: %+v, %v", r, err)
	}
	if _, err := w.predict(job.PredictOptions{Follow: true, MaxExamples: 5}, set...); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), "do not end with 5 examples") {
		t.Errorf("with a number of examples: %v", err)
	}
}
