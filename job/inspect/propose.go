package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
)

// ProposeOptions say what to look at for a job.
type ProposeOptions struct {
	Options
	spec.LoadOptions
	// Label names the column to predict; empty: one that looks like it.
	Label string
	// Name is the job's; empty: after the source.
	Name string
}

// Propose looks into a source, as [spec.ForTarget] understands it, and writes a job that trains on it, with comments on what
// is guessed. The job is tried on up to [triedRows] records before it is returned: it loads, and where it cannot read
// all of them, train.on_bad_row is skip. Errors: those of [spec.ForTarget] and [Source]; [pipeline.ErrConfig] when no
// job can be made of what the records hold, and why.
func Propose(ctx context.Context, target string, opts ProposeOptions) (*result.Proposed, error) {
	cfg, err := spec.ForTarget(target, opts.LoadOptions)
	if err != nil {
		return nil, err
	}
	l, err := probe(ctx, cfg, opts.Options)
	if err != nil {
		return nil, err
	}
	info := l.info(cfg)
	fault := func(format string, args ...any) error {
		return fmt.Errorf("job: %s: %w", fmt.Sprintf(format, args...), pipeline.ErrConfig)
	}
	if l.misread != "" {
		return nil, fault("no job can read %s: %s", target, l.misread)
	}
	if l.columns.Records == 0 {
		return nil, fault("%s has no records that say what a job should be: %s", target, strings.Join(append(info.Notes, info.BadExamples...), "; "))
	}
	if info.Parse == "" {
		return nil, fault("no job can read %s: %s", target, strings.Join(info.Notes, "; "))
	}
	p := peek.Propose(&l.columns, l.proposeOptions(cfg, opts.Label))
	if p.Label == "" {
		var names []string
		for _, c := range info.Columns {
			names = append(names, c.Name)
		}
		shown := strings.Join(names[:min(len(names), namesShown)], ", ")
		if more := len(names) - namesShown; more > 0 {
			shown += fmt.Sprintf(" and %d more", more)
		}
		return nil, fault("which column of %s is to be predicted? Say --label with one of %s%s", target, shown, near(opts.Label, names))
	}
	if p.Sparse+p.Dense == 0 {
		return nil, fault("%s holds nothing that a feature could be made of:\n%s", target, p.YAML)
	}
	name := opts.Name
	if name == "" {
		name = nameFor(target, cfg)
	}
	var set []string
	for _, s := range opts.Set { // the job holds no others
		if !strings.HasPrefix(s, "parse.") {
			set = append(set, s)
		}
	}
	tried := trial{good: 1}
	var text string
	for _, last := range []bool{false, true} {
		text = written(cfg, target, name, info, p, tried)
		made, err := spec.Decode([]byte(text), name+".yaml", spec.LoadOptions{Set: set, Components: opts.Components})
		if err != nil {
			return nil, fmt.Errorf("job: the job made for %s is not right, which should not be: %w\n%s", target, errors.New(err.Error()), text)
		}
		if last {
			break
		}
		if tried, err = try(ctx, made, opts.Options); err != nil {
			return nil, fmt.Errorf("job: no job can train on %s as it is: %w", target, err)
		}
		if tried.good == 0 && tried.bad > 0 {
			return nil, fault("no job can train on %s: all %d records that were tried are bad rows, the first because of: %s", target, tried.bad, tried.first)
		}
	}
	return &result.Proposed{Name: name, Job: text, Read: info.Read, Notes: info.Notes}, nil
}

// fewExamples is how many examples are too few to hold some out.
const fewExamples = 50

// manyBad is how many bad rows may come one behind the other and end training by the usual train.max_bad_share.
const manyBad = 400

// triedRows is how many records a proposed job is tried on, of all splits.
const triedRows = 100_000

// trial is what a job made of a part of its source.
type trial struct {
	good, bad int64
	first     string // why the first bad row is one
	whole     bool   // that was the whole source
}

// try parses a part of a job's source. It trains nothing.
func try(ctx context.Context, cfg *spec.Config, opts Options) (trial, error) {
	l := &looking{
		opts: Options{Logger: opts.Logger}, want: triedRows, timeout: cmp.Or(opts.Timeout, Timeout), bad: &keptBad{}, format: cfg.Parse.Format, parses: true,
		ids: &idCounts{},
	}
	if !cfg.Source.Bounded() {
		l.want = sampleRows
	}
	if err := l.read(ctx, cfg); err != nil && !errors.Is(err, pipeline.ErrUnavailable) {
		return trial{}, err
	}
	return l.trial(cfg), nil
}

// trial sums up what was read.
func (l *looking) trial(cfg *spec.Config) trial {
	t := trial{good: l.ids.examples, bad: l.bad.num(), whole: l.readAll(cfg)}
	if len(l.bad.first) > 0 {
		t.first = l.bad.first[0]
	}
	return t
}

// namesShown is how many names of columns an error lists.
const namesShown = 50

func near(name string, names []string) string {
	if n := nearest.Name(name, names); n != "" && name != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nameFor calls a job after its source.
func nameFor(target string, cfg *spec.Config) string {
	base := filepath.Base(filepath.ToSlash(target))
	if name, ok := cfg.Source.Stream(); ok {
		base = name
	} else if ext := filepath.Ext(strings.TrimSuffix(base, ".gz")); ext != "" {
		base = strings.TrimSuffix(strings.TrimSuffix(base, ".gz"), ext)
	}
	if base = strings.Trim(notInName.ReplaceAllString(base, "-"), "-"); base == "" {
		return "job"
	}
	return base
}

// oneLine makes a comment of a message.
func oneLine(s string) string {
	const most = 200
	if r := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " "))
}

// written is the text of a job.
func written(c *spec.Config, target, name string, info *result.SourceInfo, p peek.Proposal, tried trial) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by `monolith init %s` from %d records. What a column means it can only guess: look", target, info.Read)
	line("# through the features and the label, then check and train. docs/reference/job.md describes every key.")
	line("version: 1")
	line("name: %s", name)
	line("# dir: runs/%s                   # snapshots; train continues from what it finds there", name)
	if w, ok := c.Source.Value().(component.Written); ok {
		for _, l := range w.Written() {
			line("%s", l)
		}
	} else {
		files := make([]string, len(c.Source.FileList()))
		for i, f := range c.Source.FileList() {
			files[i] = spec.Quoted(f)
		}
		line("source: {%s: {files: [%s]}}", c.Source.Name(), strings.Join(files, ", "))
		line("# epochs: 3                      # how often the files are read; with a shuffle when their order says something:")
		line("# shuffle: {rows: 100000}")
	}
	b.WriteString(p.YAML)
	models := strings.Join(c.Components().ModelNames(), ", ")
	switch {
	case info.Format == peek.LibFM:
		line("model: {fm: {dim: 8}}            # one of %s", models)
	case p.Sparse == 0:
		line("model: lr                        # without sparse features there is nothing to embed")
	case p.Sparse+p.Dense == 1:
		line("model: lr                        # one feature has nothing to interact with")
	default:
		line("model: {deepfm: {dim: 16, hidden: [128, 64]}}   # one of %s", models)
	}
	line("train:")
	line("  batch: 512")
	switch total := tried.good + tried.bad; {
	case tried.bad > 0:
		line("  # %d of the %d records that were tried are bad rows. The first: %s", tried.bad, total, oneLine(tried.first))
		line("  on_bad_row: skip               # counts bad rows; fail ends training at the first one, dead_letter keeps them")
		switch share := float64(tried.bad) / float64(total); {
		case tried.bad > manyBad:
			line("  max_bad_share: 1               # never ends training; 0.5 is usual, and ends it where 501 of 1,000 records are bad")
		case share > 0.3:
			line("  max_bad_share: %.2f            # above this share of bad rows training ends; 0.5 is usual", (1+share)/2)
		}
	case tried.whole:
		line("  on_bad_row: fail               # skip counts bad rows, dead_letter keeps them")
	default: // there may be bad rows in what was not tried
		line("  on_bad_row: skip               # counts bad rows; fail ends training at the first one, dead_letter keeps them")
	}
	if c.Source.Bounded() {
		line("  # early_stop: {patience: 2}    # with eval and epochs: ends training where it gets no better, and the best epoch is the one that eval and predict take")
	}
	line("snapshot: {every: 5m, keep: 3}")
	_, files := c.Source.Value().(component.Files)
	switch holdout := files && c.Source.Bounded(); {
	case holdout && tried.whole && tried.good < fewExamples:
		line("# eval:                          # held-out examples: of so few, a tenth may be none or all")
		line("#   holdout: {share: 0.1}")
	case holdout:
		line("eval:                            # train evaluates after each epoch, `monolith eval` any time")
		line("  holdout: {share: 0.1}          # a tenth of the examples is held out of training, drawn one by one; {by: COLUMN, share: 0.1} draws users, say,")
		line("                                 # {by: TIME, from: VALUE} takes the latest; with files of their own for this, source: {%s: ...} in its place", c.Source.Name())
		if p.Time != "" {
			line("  # holdout: {by: %s, from: %s}   # in its place: the latest tenth of the %d records that were looked at; files may have later ones", spec.Quoted(p.Time), spec.Quoted(p.Latest), info.Read)
		}
	default:
		line("# eval:                          # held-out examples; train evaluates after each epoch, `monolith eval` any time")
		line("#   source: {%s: ...}", c.Source.Name())
	}
	line("# metrics: {listen: \":9400\"}     # for Prometheus, on 127.0.0.1")
	return b.String()
}
