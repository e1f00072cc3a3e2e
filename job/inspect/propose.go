package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow/array"

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
	l, err := probe(ctx, cfg, opts.Options, proposeRows)
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
		text = written(cfg, target, name, l, p, tried)
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
	return &result.Proposed{Name: name, Job: text, Read: l.columns.Records, Notes: info.Notes}, nil
}

// proposeRows is how many records of a source with an end a job is made from: enough to find what tells the label, and
// ids that come once.
const proposeRows = 10_000

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
	rows      int64  // of the whole source, about; 0: that is not known
	ones      int64  // good ones whose label is above a half
	labels    bool   // all labels were from 0 to 1
}

// try parses a part of a job's source. It trains nothing.
func try(ctx context.Context, cfg *spec.Config, opts Options) (trial, error) {
	l := &looking{
		opts: Options{Logger: opts.Logger}, want: triedRows, labels: &labelCounts{}, timeout: cmp.Or(opts.Timeout, Timeout), bad: &keptBad{}, format: cfg.Parse.Format, parses: true,
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
	t := trial{
		good: l.ids.examples, bad: l.bad.num(), whole: l.readAll(cfg), rows: l.rowsOfAll(cfg),
		ones: l.labels.ones, labels: l.labels.others == 0 && l.ids.examples > 0,
	}
	if len(l.bad.first) > 0 {
		t.first = l.bad.first[0]
	}
	return t
}

// labelCounts counts the labels of examples.
type labelCounts struct{ ones, others int64 }

// add counts those of a batch. Others are not from 0 to 1.
func (c *labelCounts) add(b *pipeline.Batch) {
	rec := b.Record()
	at := rec.Schema().FieldIndices(pipeline.LabelColumn(""))
	if len(at) == 0 {
		return
	}
	labels, ok := rec.Column(at[0]).(*array.Float32)
	if !ok {
		return
	}
	for _, y := range labels.Float32Values() {
		switch {
		case y < 0 || y > 1:
			c.others++
		case y > .5:
			c.ones++
		}
	}
}

// rowsOfAll is about how many records the source has, by the part of each split that was read: 0 where splits have no
// known end, as compressed files.
func (l *looking) rowsOfAll(cfg *spec.Config) int64 {
	var read, all float64
	for i, n := range l.sampled.read {
		if n == 0 || !cfg.Source.Bounded() {
			continue
		}
		s := l.splits[i]
		switch {
		case n < l.each(): // it has ended
			all += float64(n)
		case s.End <= s.Start || l.last[i] <= int64(s.Start):
			return 0
		default:
			all += float64(n) * max(1, float64(s.End-s.Start)/float64(l.last[i]-int64(s.Start)))
		}
		read++
	}
	if read == 0 {
		return 0
	}
	return int64(all / read * float64(len(l.splits))) // some splits are not read
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

// batchFor chooses train.batch by the number of records: small data needs many steps to learn anything, and large data
// few of them to be quick. On 7,200 rows of Criteo DeepFM reaches an AUC of .752 after a pass in batches of 128, .727 of
// 512 and .708 of 1,024; on 800,000 rows of MovieLens 512 and 1,024 are alike and 4,096 costs .006.
func batchFor(rows int64) int {
	switch {
	case rows < 20_000:
		return 128
	case rows < 50_000:
		return 256
	case rows < 2_000_000:
		return 512
	case rows < 20_000_000:
		return 1024
	}
	return 4096
}

// manyRows is how many records are so many that one pass is enough to begin with.
const manyRows = 20_000_000

// windowFor chooses shuffle.rows: as many records as fit into some memory. A record has so many bytes.
func windowFor(bytes int64) int {
	const most, memory = 100_000, 256 << 20
	for n := most; n > 100; n /= 10 {
		if int64(n)*max(bytes, 1) <= memory {
			return n
		}
	}
	return 100
}

// rare is the share of positives below which figures of order say little by themselves.
const rare = 0.02

// written is the text of a job.
func written(c *spec.Config, target, name string, l *looking, p peek.Proposal, tried trial) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by `monolith init %s` from %d records. What a column means it can only guess: look", target, l.columns.Records)
	line("# through the features and the label, then check and train. docs/reference/job.md describes every key.")
	line("version: 1")
	line("name: %s", name)
	line("# dir: runs/%s                   # snapshots; train continues from what it finds there", name)
	rows, about := tried.good+tried.bad, ""
	switch {
	case tried.whole:
	case tried.rows > 0:
		rows, about = max(rows, tried.rows), "about "
	default:
		about = "at least "
	}
	bounded := c.Source.Bounded()
	_, files := c.Source.Value().(component.Files)
	few := tried.whole && tried.good < fewExamples
	holdout := files && bounded && !few
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
	}
	if files && bounded {
		switch {
		case rows >= manyRows:
			line("# epochs: 3                      # how often the files are read; %s%d records teach enough the first time", about, rows)
		case holdout:
			line("epochs: 3                        # how often the files are read, at most: early_stop ends training before where that is better")
		default:
			line("epochs: 3                        # how often the files are read")
		}
		line("shuffle: {rows: %-14s# files are often sorted; so many records are mixed in memory, of about %d bytes each", fmt.Sprintf("%d}", windowFor(l.recordBytes())), l.recordBytes())
	}
	b.WriteString(p.YAML)
	models := strings.Join(c.Components().ModelNames(), ", ")
	switch {
	case l.format == peek.LibFM:
		line("model: {fm: {dim: 8}}            # one of %s", models)
	case p.Sparse == 0:
		line("model: lr                        # without sparse features there is nothing to embed")
	case p.Sparse+p.Dense == 1:
		line("model: lr                        # one feature has nothing to interact with")
	default:
		line("model: {deepfm: {dim: 16, hidden: [128, 64]}}   # one of %s", models)
	}
	line("train:")
	switch batch := batchFor(rows); {
	case !bounded:
		line("  batch: 512                     # of a stream a batch goes after train.max_batch_delay (5s), full or not")
	default:
		line("  batch: %-24d# by %s%d records: few need small batches, many are quicker in large ones", batch, about, rows)
	}
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
	switch {
	case holdout && rows < manyRows:
		line("  early_stop: {patience: 1, metric: log_loss}   # ends training where held-out examples get no better; eval, predict and export take the best epoch")
	case bounded:
		line("  # early_stop: {patience: 1, metric: log_loss}   # with eval and epochs: ends training where it gets no better, and eval, predict and export take the best epoch")
	}
	line("snapshot: {every: 5m, keep: 3}")
	share := float64(tried.ones) / float64(max(tried.good, 1))
	binary := tried.labels && tried.ones > 0 && tried.ones < tried.good
	if binary {
		constant := -share*math.Log(share) - (1-share)*math.Log(1-share)
		line("# %s of the %d labels that were tried are 1. Always to predict that has a log loss of %.4f: a model must be below.", peek.Share(tried.ones, tried.good), tried.good, constant)
		if share < rare {
			line("# So few: accuracy says nothing, and AUC little. Look at log_loss, normalized_entropy (below 1) and pr_auc (above %.2g).", share)
		}
	}
	switch {
	case files && bounded && few:
		line("# eval:                          # held-out examples: of so few, a tenth may be none or all")
		line("#   holdout: {share: 0.1}")
	case holdout:
		line("eval:                            # train evaluates after each epoch, `monolith eval` any time")
		if binary && share < rare {
			line("  metrics: [auc, pr_auc, log_loss, normalized_entropy, calibration]   # positives are rare")
		}
		line("  holdout: {share: 0.1}          # a tenth of the examples is held out of training, drawn one by one; {by: COLUMN, share: 0.1} draws users, say,")
		line("                                 # {by: TIME, from: VALUE} takes the latest; with files of their own for this, source: {%s: ...} in its place", c.Source.Name())
		if p.Time != "" {
			line("  # holdout: {by: %s, from: %s}   # in its place: the latest tenth of the %d records that were looked at; files may have later ones", spec.Quoted(p.Time), spec.Quoted(p.Latest), l.columns.Records)
		}
	default:
		line("# eval:                          # held-out examples; train evaluates after each epoch, `monolith eval` any time")
		line("#   source: {%s: ...}", c.Source.Name())
	}
	line("# metrics: {listen: \":9400\"}     # for Prometheus, on 127.0.0.1")
	return b.String()
}

// recordBytes is about how large a record is in memory.
func (l *looking) recordBytes() int64 {
	values := l.bytes
	if values == 0 { // columns
		const value = 16
		for _, c := range l.columns.List {
			values += c.Values * value
		}
	}
	return values / max(l.columns.Records, 1)
}
