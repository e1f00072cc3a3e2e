// Package tune searches for settings of a job by successive halving: many candidates train on few
// rows, and the best third advances to three times as many.
package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
)

// What [Options] stand for by default.
const (
	DefaultTime   = 10 * time.Minute
	DefaultTrials = 27
	DefaultRows   = 20_000
)

// share is how many times as many rows a rung has as the one before, and how many candidates one of
// them is kept of.
const share = 3

// leastRows is how few rows a default first rung has.
const leastRows = 1000

// Options say how to search. The zero value works.
type Options struct {
	// Logger logs each trial; nil: discard.
	Logger *slog.Logger
	// Status is called with how far a trial is; nil: none.
	Status func(result.Status)
	// Notice is called with one line for the user; nil: nobody is notified.
	Notice func(string)
	// Drain, once closed, ends the search; what is done is kept. nil: never.
	Drain <-chan struct{}
	// Memory is what the rows of tables are taken from; nil has no limit.
	Memory *table.Memory
	// Env holds the environment that the job was loaded with.
	Env []string
	// Dir is where the search keeps its state and its trials; empty: [Dir].
	Dir string
	// Time is the limit of the whole search, earlier runs included; 0: [DefaultTime].
	Time time.Duration
	// Rows is how many rows the first rung trains on; 0: [DefaultRows], or a ninth of what there is.
	Rows int64
	// Trials is the number of candidates of the first rung; 0: [DefaultTrials].
	Trials int
	// Seed draws the candidates.
	Seed uint64
	// Models are kinds of models to try beside the job's own.
	Models []string
	// Metric is the score that decides: "log_loss", "auc", or of heads "price.rmse". Empty: the first
	// head's log_loss, or its first metric.
	Metric string
	// Restart puts aside what an earlier search has left in Dir.
	Restart bool
}

// Dir is where the search of a job keeps its state if nobody says otherwise.
func Dir(cfg *spec.Config) string {
	if fsx.IsURL(cfg.Dir) {
		return filepath.Join("runs", cfg.Name+"-tune")
	}
	return filepath.Clean(cfg.Dir) + "-tune"
}

// Tune searches for better settings of a job. It trains the job as it is and candidates with other
// rates, widths, regularisation and batches on the first rows of its source, keeps the best third,
// and continues with three times as many rows. The rows that it measures on are those of eval.source or
// eval.holdout; without either, the last third of a trial's rows, each predicted before it is trained on.
//
// Trials have dirs of their own, which are removed. The job's dir, outputs, dead letters, uploads,
// consumer group and metrics endpoint are not touched. The state is stored after each trial: the same
// call again continues, and ends with the same table.
//
// Errors: [pipeline.ErrConfig] for options and jobs that cannot be and for a state of another search;
// those of the job as it is, where that does not train; [pipeline.ErrUnavailable]. Where the time limit
// or the caller ends the search, the result says so and there is no error.
func Tune(ctx context.Context, cfg *spec.Config, o Options) (*result.Tuned, error) {
	s, err := newSearch(cfg, o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	lock, err := fsx.TryLock(filepath.Join(s.dir, "lock"))
	if errors.Is(err, fsx.ErrLocked) {
		return nil, fmt.Errorf("job: another search works in %s: wait for it, or name another folder with --dir: %w: %w", s.dir, err, pipeline.ErrUnavailable)
	}
	if err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	defer lock.Close() //nolint:errcheck // the system gives it back
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	err = s.climb(ctx)
	_ = os.RemoveAll(s.trialsDir()) // of a trial that was ended
	if err != nil {
		return nil, err
	}
	return s.result()
}

// search is one call of [Tune].
type search struct {
	o          Options
	cfg        *spec.Config
	log        *slog.Logger
	dir        string
	score      string
	direction  metric.Direction
	shown      []string
	on         string
	candidates []candidate
	notes      []string
	state      *state
	earlier    int
	began      time.Time
	spent      time.Duration // of earlier runs
	timedOut   bool
	drained    bool
}

func newSearch(cfg *spec.Config, o Options) (*search, error) {
	s := &search{o: o, cfg: cfg, log: o.Logger, began: time.Now()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.o.Time, s.o.Trials = cmp.Or(o.Time, DefaultTime), cmp.Or(o.Trials, DefaultTrials)
	switch {
	case s.o.Time < 0:
		return nil, fault.Config("job: the time limit is %v, must be above 0", o.Time)
	case s.o.Trials < 2:
		return nil, fault.Config("job: %d trials are none to choose from: take 2 or more", o.Trials)
	case o.Rows < 0:
		return nil, fault.Config("job: %d rows, must be at least 0", o.Rows)
	}
	if cfg.Raw().Text == nil {
		return nil, fault.Config("job: it was made in Go and has no file to write settings into; load it from one")
	}
	s.dir = cmp.Or(o.Dir, Dir(cfg))
	if err := cfg.Destination("--dir", s.dir, true); err != nil {
		return nil, err
	}
	if within(s.dir, cfg.Dir) {
		return nil, fault.Config("job: --dir %s is in the job's dir %s: name a folder outside, such as %s", s.dir, cfg.Dir, Dir(cfg))
	}
	if _, stream := cfg.Source.Stream(); stream && dated(cfg) == nil {
		return nil, fault.Config("job: source %s is a stream of which no part can be read again, so candidates would train on other rows: name files in its place (--set source=...)", cfg.Source.Name())
	}
	from, _ := cfg.EvalSource()
	switch {
	case cfg.Eval.Source != nil:
		s.on = "eval.source"
	case from != nil:
		s.on = "eval.holdout"
	default:
		s.on = "progressive"
	}
	if err := s.chooseScore(); err != nil {
		return nil, err
	}
	return s, s.draw()
}

// within reports whether a path is a folder or lies below it.
func within(path, folder string) bool {
	if fsx.IsURL(folder) {
		return false
	}
	a, aerr := filepath.Abs(path)
	b, berr := filepath.Abs(folder)
	rel, err := filepath.Rel(b, a)
	return errors.Join(aerr, berr, err) == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// usualScores are added to the metrics of a job without heads.
var usualScores = []string{"log_loss", "auc"}

// metrics are what trials measure of a job without heads.
func metrics(cfg *spec.Config) []string {
	out := slices.Clone(usualScores)
	for _, m := range cfg.Eval.Metrics {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// chooseScore finds the score that decides, and those that are shown beside it.
func (s *search) chooseScore() error {
	cfg := *s.cfg
	if len(cfg.Heads) == 0 {
		cfg.Eval.Metrics = metrics(&cfg)
	}
	all := cfg.Scores()
	find := func(want string) string {
		for _, name := range all {
			if _, m := result.SplitScore(name); name == want || m == want {
				return name
			}
		}
		return ""
	}
	switch {
	case s.o.Metric != "":
		s.score = find(s.o.Metric)
		if s.score == "" {
			hint := ""
			if n := nearest.Name(s.o.Metric, all); n != "" {
				hint = fmt.Sprintf("; did you mean %q?", n)
			}
			return fault.Config("job: --metric %s is none of %s%s", s.o.Metric, strings.Join(all, ", "), hint)
		}
	default:
		s.score = cmp.Or(find("log_loss"), append(all, "")[0])
		if s.score == "" {
			return fault.Config("job: no head has a metric to go by: give one heads.metrics")
		}
	}
	m, _ := cfg.Measured(s.score)
	s.direction = m.Direction
	head, _ := result.SplitScore(s.score)
	s.shown = []string{s.score}
	for _, name := range all {
		if h, m := result.SplitScore(name); h == head && slices.Contains(usualScores, m) && !slices.Contains(s.shown, name) {
			s.shown = append(s.shown, name)
		}
	}
	return nil
}

func (s *search) notice(format string, args ...any) {
	if s.o.Notice != nil {
		s.o.Notice(fmt.Sprintf(format, args...))
	}
}

// errEnded says that the time limit or the caller has ended the search.
var errEnded = errors.New("the search has ended")

// climb runs rung after rung.
func (s *search) climb(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := s.o.Time - s.spent - time.Since(s.began)
	watch := time.NewTimer(max(left, 0))
	defer watch.Stop()
	over, done := make(chan struct{}), make(chan struct{})
	ended := make(chan string, 1)
	go func() {
		defer close(done)
		select {
		case <-s.o.Drain:
			ended <- "drained"
			cancel()
		case <-watch.C:
			ended <- "timeout"
			cancel()
		case <-over:
		}
	}()
	err := s.rungs(ctx)
	close(over)
	<-done
	select {
	case why := <-ended:
		if errors.Is(err, errEnded) {
			s.drained, s.timedOut = why == "drained", why == "timeout"
			return nil
		}
	default:
	}
	if errors.Is(err, errEnded) { // by the context of the caller
		return context.Cause(ctx)
	}
	return err
}

// rungs runs them until one candidate is left, there are no more rows, or the context ends.
func (s *search) rungs(ctx context.Context) error {
	members := make([]int, len(s.candidates))
	for i := range members {
		members[i] = i
	}
	for rung := 0; ; rung++ {
		if err := s.rung(ctx, rung, members); err != nil {
			return err
		}
		st := s.state
		rows := st.Rows[rung]
		ranked := s.ranked(rung)
		s.notice("rung %d of %s rows is done: %s", rung+1, count(rows), s.standing(rung, ranked))
		if len(members) <= share || st.Total > 0 && rows >= st.Total {
			return nil
		}
		members = ranked[:min(len(ranked), (len(members)+share-1)/share)]
		if len(members) == 0 || len(members) == 1 && members[0] == 0 {
			return nil
		}
	}
}

// standing says who leads a rung.
func (s *search) standing(rung int, ranked []int) string {
	if len(ranked) == 0 {
		return "all candidates were lost"
	}
	t := s.state.find(rung, ranked[0], false)
	base := s.state.find(rung, 0, false)
	return fmt.Sprintf("%s %.5f by candidate %d, %.5f by the job as it is", s.score, float64(t.Scores[s.score]), ranked[0], float64(base.Scores[s.score]))
}

// rung runs the trials of a rung that are not done. The job as it is comes first: it says how many rows
// there are.
func (s *search) rung(ctx context.Context, rung int, members []int) error {
	for {
		rows := s.plannedRows(rung)
		base, err := s.once(ctx, rung, 0, rows, false)
		if err != nil {
			return err
		}
		if base.Rows >= rows {
			break
		}
		if base.Rows == 0 {
			return fault.Config("job: the source has no rows to train on")
		}
		s.state.Total = base.Rows
		s.state.drop(rung)
		if err := s.state.store(ctx, s.dir); err != nil {
			return err
		}
	}
	if _, err := s.once(ctx, rung, 0, s.state.Rows[rung], true); err != nil {
		return err
	}
	for _, m := range members {
		if _, err := s.once(ctx, rung, m, s.state.Rows[rung], false); err != nil {
			return err
		}
	}
	return nil
}

// plannedRows is how many rows a rung trains on. It is a function of what is known of the source.
func (s *search) plannedRows(rung int) int64 {
	total := s.state.Total
	if rung > 0 {
		rows := s.state.Rows[rung-1] * share
		if total > 0 {
			rows = min(rows, total)
		}
		return rows
	}
	rows := cmp.Or(s.o.Rows, DefaultRows)
	if total == 0 || total >= rows && s.o.Rows > 0 {
		return rows
	}
	if s.o.Rows > 0 {
		return total
	}
	for _, part := range []int64{total / (share * share), total / share} {
		if part >= leastRows {
			return min(part, rows)
		}
	}
	return min(total, rows)
}

// once runs a trial unless it is done.
func (s *search) once(ctx context.Context, rung, number int, rows int64, otherSeed bool) (*trial, error) {
	if t := s.state.find(rung, number, otherSeed); t != nil && t.Planned == rows {
		return t, nil
	}
	if ctx.Err() != nil {
		return nil, errEnded
	}
	began := time.Now()
	t, err := s.try(ctx, rung, number, rows, otherSeed)
	if ctx.Err() != nil {
		return nil, errEnded
	}
	if err != nil {
		return nil, err
	}
	t.Seconds = time.Since(began).Seconds()
	s.state.add(t)
	s.state.Seconds = (s.spent + time.Since(s.began)).Seconds()
	if err := s.state.store(ctx, s.dir); err != nil {
		return nil, err
	}
	attrs := []any{"rung", rung + 1, "rows", t.Rows, "candidate", number, "settings", s.candidates[number].String()}
	switch {
	case t.Lost != "":
		attrs = append(attrs, "lost", t.Lost)
	default:
		for _, name := range s.shown {
			attrs = append(attrs, name, math.Round(t.Scores[name]*1e5)/1e5)
		}
	}
	s.log.InfoContext(ctx, "trial", attrs...)
	return t, nil
}

// fatal reports whether an error of a candidate is none of its settings: a broker that is away.
func fatal(err error) bool {
	if failure.Has(err, failure.Full, failure.NoSpace, failure.Disk) {
		return false
	}
	return failure.Of(err).Class() == failure.Environment
}

// ranked are the candidates of a rung that were measured, the best first. Of equal ones the one with
// fewer changes is first, then the one with the lower number.
func (s *search) ranked(rung int) []int {
	var out []int
	value := map[int]float64{}
	for _, t := range s.state.Trials {
		if t.Rung == rung && !t.OtherSeed && t.Lost == "" {
			out = append(out, t.Candidate)
			value[t.Candidate] = t.Scores[s.score]
		}
	}
	slices.SortFunc(out, func(a, b int) int {
		va, vb := value[a], value[b]
		switch {
		case s.direction.Better(va, &vb, 0):
			return -1
		case s.direction.Better(vb, &va, 0):
			return 1
		}
		return cmp.Or(cmp.Compare(len(s.candidates[a].changes), len(s.candidates[b].changes)), cmp.Compare(a, b))
	})
	return out
}

// gain is by how much a value is better than another.
func (s *search) gain(v, than float64) float64 {
	switch s.direction {
	case metric.Lower:
		return than - v
	case metric.One:
		return math.Abs(than-1) - math.Abs(v-1)
	}
	return v - than
}
