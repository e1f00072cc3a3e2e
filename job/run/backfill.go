package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// backfill is the part of the history of a stream that was, or is, trained on, as it is stored beside the parameters (worker state
// "backfill"). All that depends on the moment (files, offsets) is found once, before anything is trained, so that every run reads the same.
// What the stream has remembered where it begins is stored under its splits as well, as it is when a stream begins by itself: that is all
// that training on the stream goes by afterwards.
type backfill struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Stream is the one it is the history of.
	Stream string `json:"stream"`
	// Files are those to read, in order, if it is in files; InOrder reports whether one worker reads them so.
	Files   []backfillFile `json:"files,omitempty"`
	InOrder bool           `json:"in_order,omitempty"`
	// Starts is where it begins in the stream, if it is there.
	Starts map[string]pipeline.Position `json:"starts,omitempty"`
	// Begins is where the stream begins after it, and Memories what the stream remembers of its splits there.
	Begins   map[string]pipeline.Position `json:"begins"`
	Memories map[string]string            `json:"memories"`
	// Done reports whether all of it is trained on.
	Done bool `json:"done"`
}

type backfillFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// backfillKey is the worker state that holds it.
const backfillKey = "backfill"

func (b *backfill) String() string { return span(b.From, b.To) }

func span(from, to time.Time) string {
	return from.UTC().Format(time.RFC3339Nano) + " to " + to.UTC().Format(time.RFC3339Nano)
}

// startOver is what to do about parameters that were trained in another way.
const startOver = "to start over, use another dir (--set dir=...) or --resume=false, which puts the snapshots aside"

// beginBackfill has the run train on what of the stream's history its options ask for, rather than on the stream. It finds and stores
// what that is, unless a run before has; t.past.Done is set where nothing is left of it. A run on the source itself must not overtake a
// backfill that is not complete. Errors: [pipeline.ErrConfig], [pipeline.ErrUnavailable], a [*pipeline.GapError] for a topic that is not the
// same any more.
func (t *trainer) beginBackfill(ctx context.Context) error {
	b, err := t.storedBackfill(ctx)
	if err != nil {
		return err
	}
	want := t.opts.Backfill
	if want == nil {
		if b == nil || b.Done {
			return nil
		}
		return fault.Config("job: the backfill from %s of %s is not complete: run `monolith backfill` with the same bounds again, which continues it; or, %s", b, t.cfg.Dir, startOver)
	}
	stream, ok := t.cfg.Source.Value().(component.Dated)
	if !ok {
		return fault.Config("job: source %s has no history to train on before it: a backfill is of a stream whose records have times, such as kafka", t.cfg.Source.Name())
	}
	if !want.From.Before(want.To) {
		return fault.Config("job: a backfill from %s is empty: from must be before to", span(want.From, want.To))
	}
	if want.To.After(time.Now()) {
		return fault.Config("job: a backfill from %s ends in the future: more may come of that time yet", span(want.From, want.To))
	}
	label := t.cfg.SourceNode() + " " + stream.StreamName()
	switch {
	case b == nil:
		if err := t.streamIsNew(ctx); err != nil {
			if now, failed := t.storedBackfill(ctx); failed == nil && now != nil { // another worker begins it this moment
				return t.beginBackfill(ctx)
			}
			return err
		}
		if b, err = t.findBackfill(ctx, stream, *want); err != nil {
			return err
		}
		b.Stream = label
		// Of workers that begin at the same moment one decides what is read: what the others have found may end later.
		if _, err := t.shards.InitState(ctx, backfillKey, b.json()); err != nil {
			return fmt.Errorf("job: storing what the backfill reads: %w", err)
		}
		return t.beginBackfill(ctx)
	case !b.From.Equal(want.From) || !b.To.Equal(want.To):
		how := "is not complete yet"
		if b.Done {
			how = "is complete"
		}
		return fault.Config("job: %s was given the history from %s, which %s, so it cannot be given that from %s; %s", t.cfg.Dir, b, how, span(want.From, want.To), startOver)
	case b.Stream != label:
		return fault.Config("job: the backfill of %s is of the stream %q, and the job's is %q; %s", t.cfg.Dir, b.Stream, label, startOver)
	case b.Done:
		t.past = b
		t.notice("the backfill from %s is complete: `monolith train` continues with the stream", b)
		return nil
	default:
		if err := t.stillThere(ctx, b); err != nil {
			return err
		}
	}
	for split, memory := range b.Memories { // a run that was killed may not have stored them all
		key := ps.SourceState(t.cfg.SourceNode(), split)
		if err := t.shards.SetState(ctx, key, []byte(memory)); err != nil {
			return fmt.Errorf("job: storing where the stream begins: %w", err)
		}
	}
	return t.turn(b)
}

// followBackfill has executors in another process read what the run that they belong to does.
func (t *trainer) followBackfill(ctx context.Context) error {
	b, err := t.storedBackfill(ctx)
	if err == nil && b == nil {
		err = fault.Config("job: the shards know of no backfill")
	}
	if err != nil {
		return err
	}
	return t.turn(b)
}

// turn has the run read history.
func (t *trainer) turn(b *backfill) error {
	past, err := b.source(t.cfg)
	if err != nil {
		return err
	}
	cfg := t.cfg.Backfilling(past, b.InOrder)
	plan, err := wiring.TrainGraph(cfg, t.model, wiring.TrainReading(cfg, cfg.Epochs), nil, nil, trainstep.StepOptions{Seed: cfg.Seed})
	if err != nil {
		return err
	}
	t.cfg, t.plan, t.past = cfg, plan, b
	if len(b.Files) == 0 && !b.Done {
		t.monitor.times = &timeWatch{from: b.From.UnixMicro(), to: b.To.UnixMicro()}
	}
	return nil
}

// source is what of the job's history is read.
func (b *backfill) source(cfg *spec.Config) (component.SourceConfig, error) {
	if len(b.Files) > 0 {
		files, ok := cfg.Backfill.Source.Value().(component.OrderedFiles)
		if !ok {
			return nil, fault.Config("job: backfill.source: the backfill from %s was begun with files; set it back to what it was", b)
		}
		paths := make([]string, len(b.Files))
		for i, f := range b.Files {
			paths[i] = f.Path
		}
		return files.InOrder(paths), nil
	}
	stream, ok := cfg.Source.Value().(component.Dated)
	if !ok {
		return nil, fault.Config("job: source: the backfill from %s was begun with a stream; set it back to what it was", b)
	}
	return stream.Between(b.Starts, b.Begins)
}

func (t *trainer) storedBackfill(ctx context.Context) (*backfill, error) {
	js, err := t.shards.State(ctx, backfillKey)
	if err != nil || js == nil {
		return nil, err
	}
	b := &backfill{}
	if err := json.Unmarshal(js, b); err != nil {
		return nil, fmt.Errorf("job: what is stored of the backfill: %w", err)
	}
	return b, nil
}

func (b *backfill) json() []byte {
	js, err := json.Marshal(b)
	if err != nil {
		panic("job: a backfill does not marshal: " + err.Error()) // text, numbers and times
	}
	return js
}

// streamIsNew returns an error where the stream was trained on before: its history would come after it.
func (t *trainer) streamIsNew(ctx context.Context) error {
	progress, err := t.shards.Progress(ctx, t.source().Name)
	if err != nil {
		return err
	}
	splits, err := t.plan.Splits(ctx)
	if err != nil {
		return err
	}
	for _, s := range splits {
		known, err := t.shards.State(ctx, ps.SourceState(t.source().Name, s.Name))
		if err != nil {
			return err
		}
		if p, begun := progress[s.Name]; begun || known != nil {
			at := ""
			if begun {
				at = fmt.Sprintf(" up to position %s", p.Position.Text())
			}
			return fault.Config("job: %s was trained on %s (split %s)%s, and a backfill comes before the stream; %s", t.cfg.Dir, t.source().Source, s.Name, at, startOver)
		}
	}
	return nil
}

// findBackfill finds what to read, and where the stream begins after it.
func (t *trainer) findBackfill(ctx context.Context, stream component.Dated, of Range) (*backfill, error) {
	b := &backfill{From: of.From.UTC(), To: of.To.UTC(), Begins: map[string]pipeline.Position{}, Memories: map[string]string{}}
	if t.cfg.Backfill.Source != nil {
		b.InOrder = t.cfg.Backfill.InOrder
		if err := t.findFiles(ctx, b); err != nil {
			return nil, err
		}
	}
	begins, err := t.splitsFrom(ctx, stream, b.To)
	if err != nil {
		return nil, err
	}
	for _, s := range begins {
		b.Begins[s.Name], b.Memories[s.Name] = s.Start, s.Memory
	}
	if len(b.Files) > 0 {
		return b, nil
	}
	starts, err := t.splitsFrom(ctx, stream, b.From)
	if err != nil {
		return nil, err
	}
	oldest, err := t.splitsFrom(ctx, stream, time.Time{})
	if err != nil {
		return nil, err
	}
	b.Starts = map[string]pipeline.Position{}
	var records int64
	for _, s := range starts {
		end, ok := b.Begins[s.Name]
		if !ok { // a partition that was added this moment: the stream has all of it
			continue
		}
		b.Starts[s.Name] = min(s.Start, end) // times need not ascend
		records += int64(end - b.Starts[s.Name])
	}
	if len(b.Starts) != len(b.Begins) {
		return nil, fmt.Errorf("job: %s had %d splits and now has %d: %w", t.source().Source, len(b.Begins), len(b.Starts), pipeline.ErrUnavailable)
	}
	var cut []string
	for _, s := range oldest {
		if s.Start > 0 && b.Starts[s.Name] == s.Start {
			cut = append(cut, fmt.Sprintf("%s at %d", s.Name, s.Start))
		}
	}
	if len(cut) > 0 {
		t.notice("the oldest records of the stream are read (%s): what was removed before them may have been of the time from %s on", few(cut), of.From.UTC().Format(time.RFC3339))
	}
	if text, err := t.oldTimes(ctx, stream); err != nil {
		return nil, err
	} else if text != "" {
		t.notice("%s", text)
	}
	if records == 0 {
		t.notice("the stream has no records from %s: there is nothing to train on, and it begins at the latter", b)
	}
	return b, nil
}

// plausible is the time before which no stream's records happened. Milliseconds that count seconds
// lie before it until the year 2968.
var plausible = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// oldTimes describes a stream that has records, none of them with a plausible time; empty: it is
// none. Errors: those of listing its splits.
func (t *trainer) oldTimes(ctx context.Context, stream component.Dated) (string, error) {
	// The order matters: what comes meanwhile must not look older than it is.
	newer, err := t.splitsFrom(ctx, stream, plausible)
	if err != nil {
		return "", err
	}
	oldest, err := t.splitsFrom(ctx, stream, time.Time{})
	if err != nil {
		return "", err
	}
	end, err := t.splitsFrom(ctx, stream, time.Now().AddDate(100, 0, 0))
	if err != nil {
		return "", err
	}
	starts := func(splits []pipeline.Split) map[string]pipeline.Position {
		out := map[string]pipeline.Position{}
		for _, s := range splits {
			out[s.Name] = s.Start
		}
		return out
	}
	first, last := starts(oldest), starts(end)
	var records int64
	for _, s := range newer {
		if s.Start < last[s.Name] {
			return "", nil
		}
		records += int64(last[s.Name] - first[s.Name])
	}
	if records <= 0 {
		return "", nil
	}
	return fmt.Sprintf("none of the %d records of %s %s has an event time after %s: times look like seconds, not milliseconds; have the producer write milliseconds since 1970",
		records, t.cfg.Source.Name(), stream.StreamName(), plausible.Format(time.DateOnly)), nil
}

// warnOldTimes logs a stream whose times retention cannot go by. It only looks: where the stream
// cannot be asked, reading it says so.
func (t *trainer) warnOldTimes(ctx context.Context) {
	const patience = 5 * time.Second
	stream, ok := t.cfg.Source.Value().(component.Dated)
	rules := t.cfg.RetentionRules()
	if !ok || t.opts.Backfill != nil || !rules.Expires() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch text, err := t.oldTimes(ctx, stream); {
	case err != nil:
		t.log.DebugContext(ctx, "looking for the times of the stream", "err", err)
	case text != "":
		t.notice("%s; retention.expire goes by these times", text)
	}
}

// timeWatch counts records whose event time lies outside of [from, to), in microseconds since 1970.
type timeWatch struct {
	from, to int64
	others   atomic.Int64
}

func (w *timeWatch) add(times []int64) {
	n := int64(0)
	for _, at := range times {
		if at < w.from || at >= w.to {
			n++
		}
	}
	if n > 0 {
		w.others.Add(n)
	}
}

// few lists some of many.
func few(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// splitsFrom lists the stream's splits from a time on.
func (t *trainer) splitsFrom(ctx context.Context, stream component.Dated, at time.Time) ([]pipeline.Split, error) {
	r := wiring.TrainReading(t.cfg, 0)
	from := spec.SourceOf(t.cfg.Source.Name(), stream.From(at))
	r.Source = &from
	splits, err := r.Splits(ctx)
	if err != nil {
		return nil, fault.Unavailable(err)
	}
	return splits, nil
}

// findFiles finds the files of each hour or day of a backfill, in that order.
func (t *trainer) findFiles(ctx context.Context, b *backfill) error {
	section := &t.cfg.Backfill
	every, unit, layout := section.Every(), "day", time.DateOnly
	if every == time.Hour {
		unit, layout = "hour", "2006-01-02T15"
	}
	for flag, at := range map[string]time.Time{"from": b.From, "to": b.To} {
		if cut := at.Truncate(every); !cut.Equal(at) {
			return fault.Config("job: --%s %s is within the %s %s, and backfill.source has one path for each %s: it can be %s or %s",
				flag, at.Format(time.RFC3339), unit, cut.Format(layout), unit, cut.Format(layout), cut.Add(every).Format(layout))
		}
	}
	const most = 100_000
	if n := b.To.Sub(b.From) / every; n > most {
		return fault.Config("job: from %s are %d %ss, more than %d", b, n, unit, most)
	}
	var missing []string
	all := 0
	for at := b.From; at.Before(b.To); at = at.Add(every) {
		all++
		files, err := filesplit.ExpandInOrder(ctx, fsx.Local{}, section.Patterns(at))
		if _, ok := errors.AsType[*filesplit.NoMatchError](err); ok && ctx.Err() == nil {
			missing = append(missing, at.Format(layout))
			continue
		}
		if err != nil {
			return fault.Mark(fmt.Errorf("backfill.source.%s.files: %w", section.Source.Name(), err), pipeline.ErrUnavailable, "")
		}
		for _, f := range files {
			b.Files = append(b.Files, backfillFile{f.Path, f.Size})
		}
	}
	switch {
	case len(b.Files) == 0:
		return fault.Config("job: backfill.source.%s.files: no %s from %s has a file: the first path looked for is %s", section.Source.Name(), unit, b, strings.Join(section.Patterns(b.From), ", "))
	case len(missing) > 0 && section.OnMissing == "skip":
		t.notice("%d of %d %ss have no file and are passed over (backfill.on_missing: skip): %s", len(missing), all, unit, few(missing))
	case len(missing) > 0:
		return fault.Config("job: backfill.source.%s.files: %d of %d %ss have no file: %s; set backfill.on_missing: skip to pass over them", section.Source.Name(), len(missing), all, unit, few(missing))
	}
	return nil
}

// stillThere checks that a backfill that was begun finds what it found then.
func (t *trainer) stillThere(ctx context.Context, b *backfill) error {
	if (len(b.Files) > 0) != (t.cfg.Backfill.Source != nil) {
		return fault.Config("job: the backfill from %s was begun with history in %s; set backfill.source back to what it was, or, %s", b, map[bool]string{true: "files", false: "the stream"}[len(b.Files) > 0], startOver)
	}
	if len(b.Files) == 0 {
		r, ok := t.source().Source.(pipeline.Rememberer)
		if !ok {
			return nil
		}
		splits, err := t.plan.Splits(ctx)
		if err != nil {
			return fault.Unavailable(err)
		}
		splits = slices.DeleteFunc(splits, func(s pipeline.Split) bool { return b.Memories[s.Name] == "" })
		_, err = r.Recall(splits, maps.Clone(b.Memories))
		return err
	}
	for _, f := range b.Files {
		info, err := (fsx.Local{}).Stat(ctx, f.Path)
		switch {
		case err != nil:
			return fault.Mark(fmt.Errorf("job: a file of the backfill that was begun: %w", err), pipeline.ErrUnavailable, "put it back; or, "+startOver)
		case info.Size != f.Size:
			return fault.Config("job: file %s has %d bytes, and had %d when the backfill was begun: put it back; or, %s", f.Path, info.Size, f.Size, startOver)
		}
	}
	return nil
}

// unchanged reports files that are not those that a backfill was begun with, by what they hold.
func (b *backfill) unchanged(k *knownSplits) error {
	if b == nil || len(k.replaced) == 0 && k.one == epochsource.OneSplitName {
		return nil
	}
	changed := k.replaced
	if len(changed) == 0 || k.one != epochsource.OneSplitName {
		changed = []string{"as one sequence"}
	}
	return fault.Config("job: the files of the backfill from %s hold something else than when it was begun (%s): put them back; or, %s", b, few(changed), startOver)
}

// endBackfill stores that all of a backfill is trained on, in the state that the last snapshot has. marked reports whether that is news.
func (t *trainer) endBackfill(ctx context.Context, m *member, a ps.Assignment, finished bool) (marked bool, err error) {
	if t.past == nil || !finished {
		return false, nil
	}
	b, err := t.storedBackfill(ctx)
	if err != nil || b == nil || b.Done {
		return false, err
	}
	b.Done = true
	if err := t.setter(m, a)(context.WithoutCancel(ctx), backfillKey, b.json()); err != nil {
		return false, fmt.Errorf("job: storing that the backfill is complete: %w", err)
	}
	return true, nil
}

// backfilled describes the backfill of a run; nil: it was none.
func (t *trainer) backfilled(ctx context.Context) (*result.Backfill, error) {
	if t.past == nil {
		return nil, nil
	}
	b, err := t.storedBackfill(ctx)
	if err != nil || b == nil {
		return nil, err
	}
	r := &result.Backfill{From: b.From, To: b.To, Complete: b.Done, Files: len(b.Files), Begins: map[string]int64{}}
	if t.monitor.times != nil {
		r.OtherTimes = t.monitor.times.others.Load()
	}
	for split, at := range b.Begins {
		r.Begins[split] = int64(at)
	}
	return r, nil
}
