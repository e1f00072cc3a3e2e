package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/transforms/parse"
)

// Source looks into a job's source: what the records hold, what the job's parse section makes of them, and where
// it has none, one that fits. Records come from all splits alike, and reading ends after [Options].Timeout with
// what it has seen. Nothing is changed: no position is stored, and bad rows are counted and go nowhere.
//
// Errors: [pipeline.ErrConfig] and [pipeline.ErrSchema] for what the user can fix, [pipeline.ErrUnavailable] for what
// cannot be reached in time.
func Source(ctx context.Context, cfg *spec.Config, opts Options) (*result.SourceInfo, error) {
	l, err := probe(ctx, cfg, opts, sampleRows)
	if err != nil {
		return nil, err
	}
	return l.info(cfg), nil
}

// probe reads a sample, of so many records where the source has an end.
func probe(ctx context.Context, cfg *spec.Config, opts Options, want int) (*looking, error) {
	if !cfg.Source.Bounded() {
		want = sampleRows
	}
	l := &looking{
		opts: opts, want: want, timeout: cmp.Or(opts.Timeout, Timeout), bad: &keptBad{}, format: cfg.Parse.Format,
		parses: len(cfg.Parse.Features) > 0, names: cfg.Parse.Columns, header: cfg.Parse.Header,
	}
	return l, l.read(ctx, cfg)
}

// read reads the sample.
func (l *looking) read(ctx context.Context, cfg *spec.Config) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var err error
	if l.cfg = toLookAt(cfg, max(l.opts.Rows, l.want), l.timeout); cfg.Source.Columnar() {
		err = l.stored(ctx)
	} else {
		err = l.blocks(ctx)
	}
	if err != nil {
		return outOfTime(ctx, err, l.timeout)
	}
	if len(l.sampled.faults) > 0 && len(l.sampled.faults) == len(l.splits) {
		return l.sampled.faults[0] // nothing could be read at all
	}
	return nil
}

// looking is one sample of a source being read.
type looking struct {
	cfg  *spec.Config
	opts Options
	// want is how many records are enough, of all splits.
	want    int
	timeout time.Duration
	// ids, if not nil, counts the ids of examples, and nothing else is taken note of but labels.
	ids    *idCounts
	labels *labelCounts
	bad    *keptBad
	format string
	kinds  map[string]string // what the whole numbers of columns mean, where that is said ([pipeline.MetadataKind])
	names  []string          // of csv and tsv columns
	header bool
	parses bool // the job says how
	// misread says what the records are, in place of what they seem to be.
	misread string
	// waiting are blocks whose records wait for their format to be known, and numWaiting how many those are.
	waiting    []waiting
	numWaiting int
	settled    bool

	source   string
	splits   []pipeline.Split
	sampled  sampled
	columns  peek.Columns
	features peek.Columns
	found    foundFeatures
	rows     [][]result.RowInfo // of each split, and where each row ends
	ends     [][]int64
	last     map[int]int64 // where reading ended in each split
	bytes    int64         // of the records that are in columns
	notes    []string
}

// waiting is a block of a split.
type waiting struct {
	split int
	block *pipeline.Block
}

// begin lists the splits, and says how many records of each are enough.
func (l *looking) begin(ctx context.Context, src interface {
	String() string
	Splits(context.Context) ([]pipeline.Split, error)
},
) (each int64, err error) {
	l.source = src.String()
	if l.splits, err = src.Splits(ctx); err != nil {
		return 0, err
	}
	if l.rows == nil {
		l.rows, l.ends = make([][]result.RowInfo, len(l.splits)), make([][]int64, len(l.splits))
	}
	return l.each(), nil
}

// blocks looks into a source of undecoded records.
func (l *looking) blocks(ctx context.Context) error {
	r := wiring.TrainReading(l.cfg, 0)
	r.Log = l.opts.Logger
	r.Side = "" // what is held out is looked at too
	src, err := r.OpenBlocks()
	if err != nil {
		return err
	}
	var stage pipeline.Stage[*pipeline.Block, *pipeline.Batch]
	if l.parses {
		opts := r.ParseOptions()
		opts.Format = parse.Format(r.Format)
		stage = parse.New(opts)
		if _, err := stage.Schema(src.Schema()); err != nil {
			return err
		}
	}
	each, err := l.begin(ctx, src)
	if err != nil {
		return err
	}
	env := l.env(r.Name)
	defer env.CloseResources() //nolint:errcheck // they were only read
	var p pipeline.Processor[*pipeline.Block, *pipeline.Batch]
	if stage != nil {
		if p, err = stage.Open(ctx, env); err != nil {
			return err
		}
		defer p.Close() //nolint:errcheck // see above
	}
	var broken error
	l.sampled = sampling[*pipeline.Block]{
		source: src, env: env, splits: l.splits, each: each,
		take: func(ctx context.Context, split int, b *pipeline.Block) error {
			l.records(split, b)
			if p == nil || broken != nil {
				b.Release()
				return broken
			}
			err := p.Process(ctx, b, func(out *pipeline.Batch) error { return l.examples(split, out) })
			if err != nil && ctx.Err() == nil {
				broken = err // the job's fault, not the split's
			}
			return err
		},
	}.run(ctx)
	l.settle()
	return broken
}

// env is what the parts of a sample's graph get.
func (l *looking) env(source string) *pipeline.Env {
	l.found = foundFeatures{seen: map[string]*parse.Seen{}}
	return &pipeline.Env{Source: source, BadRows: l.bad, Logger: l.opts.Logger, Hooks: pipeline.NewHooks(&l.found)}
}

// foundFeatures is what parsing found of each feature. Calls of [sampling].take do not overlap, so nor do its.
type foundFeatures struct {
	seen map[string]*parse.Seen
}

// FeaturesParsed implements [parse.Observer].
func (f *foundFeatures) FeaturesParsed(seen []parse.Seen) {
	for _, s := range seen {
		if f.seen[s.Name] == nil {
			f.seen[s.Name] = &parse.Seen{Name: s.Name}
		}
		f.seen[s.Name].Add(s)
	}
}

// records takes note of the records of a block, once enough of them are there to know their format.
func (l *looking) records(split int, b *pipeline.Block) {
	if l.ids != nil && l.columns.Records >= sampleRows {
		return
	}
	b.Retain()
	l.waiting = append(l.waiting, waiting{split, b})
	if l.numWaiting += b.NumRows(); l.parses || l.settled || l.numWaiting >= peek.SniffRecords {
		l.settle()
	}
}

// settle recognises the format of the records that wait, unless it is known, and takes note of them.
func (l *looking) settle() {
	if !l.parses && !l.settled {
		l.settled = true
		var head [][]byte
		for _, w := range l.waiting {
			if line, named := header(w.block); named && len(head) == 0 {
				head = append(head, []byte(line))
			}
			payload := w.block.Payload()
			for i := 0; i < w.block.NumRows() && len(head) < peek.SniffRecords; i++ {
				head = append(head, payload.Value(i))
			}
		}
		if l.format == "" {
			l.format = peek.Sniff(head, "")
		}
		l.misread = peek.Misread(l.format, head)
		if (l.format == peek.CSV || l.format == peek.TSV) && l.names == nil && !l.header && len(head) > 0 {
			l.names = peek.Names(l.format, peek.Usual(l.format, head), false)
		}
	}
	for _, w := range l.waiting {
		l.decode(w.split, w.block)
		w.block.Release()
	}
	l.waiting = l.waiting[:0]
}

// decode takes note of the records of a block.
func (l *looking) decode(split int, b *pipeline.Block) {
	payload, ends := b.Payload(), b.Positions()
	if line, ok := header(b); ok {
		l.names, l.header = peek.Names(l.format, []byte(line), true), true
		for i, n := range l.names {
			if first := slices.Index(l.names, n); first < i && n != "" {
				l.note("the header names column %q twice, fields %d and %d: rename one, or take the line out and give parse.columns, where an empty name skips a column", n, first+1, i+1)
			}
		}
	}
	at, begins := int64(b.Origin().From), b.Begins()
	for i := range b.NumRows() {
		if begins != nil {
			at = begins[i]
		}
		if l.columns.Enough() {
			return
		}
		fields, err := peek.Decode(l.format, l.names, payload.Value(i))
		switch {
		case err == nil:
			l.columns.Add(fields)
			l.bytes += int64(len(payload.Value(i)))
		case !l.parses: // else parsing says it, in its own words
			_ = l.bad.BadRow(context.Background(), &pipeline.DataError{
				Source: l.cfg.SourceNode(), Split: l.splits[split].Name, Position: pipeline.Position(at), Reason: "malformed row", Err: err,
			}, nil) // it only counts
		}
		if len(l.rows[split]) < l.opts.Rows && (err == nil || l.parses) {
			l.keep(split, at, ends[i], fields)
		}
		at = ends[i]
	}
}

// readAll reports whether the sample is the whole source.
func (l *looking) readAll(cfg *spec.Config) bool {
	if !cfg.Source.Bounded() || l.sampled.late+l.sampled.skipped+len(l.sampled.faults) > 0 {
		return false
	}
	for _, n := range l.sampled.read {
		if n >= l.each() { // else it ended before it had given enough
			return false
		}
	}
	return true
}

// each is how many records of a split are enough.
func (l *looking) each() int64 {
	n := max(len(l.splits), 1)
	return int64(max((l.want+n-1)/n, l.opts.Rows))
}

// note adds what a person should know, once.
func (l *looking) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(l.notes, n) {
		l.notes = append(l.notes, n)
	}
}

// keep keeps a record to be shown.
func (l *looking) keep(split int, at, end int64, fields []peek.Field) {
	row := result.RowInfo{Split: l.splits[split].Name, Position: at, Record: valuesOf(fields)}
	l.rows[split], l.ends[split] = append(l.rows[split], row), append(l.ends[split], end)
}

func valuesOf(fields []peek.Field) map[string]any {
	out := make(map[string]any, len(fields))
	for _, f := range fields {
		out[f.Name] = f.Value
	}
	return out
}

func header(b *pipeline.Block) (string, bool) {
	md := b.Record().Schema().Metadata()
	i := md.FindKey(pipeline.MetadataHeader)
	if i < 0 {
		return "", false
	}
	return md.Values()[i], true
}

// stored looks into a source of columns: at all its columns, and at those that the job asks for, as it asks for them.
func (l *looking) stored(ctx context.Context) error {
	columns, ok := l.cfg.Source.Value().(component.Columns)
	if !ok {
		return fmt.Errorf("job: a %s source has no columns: %w", l.cfg.Source.Name(), pipeline.ErrConfig)
	}
	l.source = l.cfg.Source.Name() + " " + strings.Join(l.cfg.Source.FileList(), ", ") // until it is open, which needs a column
	schema, unreadable, err := columns.Describe(ctx)
	if err != nil {
		return err
	}
	for _, name := range unreadable {
		l.note("column %q cannot be read: it is none of whole numbers, floats of 32 or 64 bits, texts, truths, times and lists of one of these; of a group, name one of its parts, joined by dots", name)
	}
	l.kinds = map[string]string{}
	for _, f := range schema.Fields() {
		if kind, ok := f.Metadata.GetValue(pipeline.MetadataKind); ok {
			l.kinds[f.Name] = kind
		}
	}
	if schema.NumFields() > 0 && l.ids == nil {
		src, err := columns.OpenColumns(component.Opening{Seed: l.cfg.Seed, Log: l.opts.Logger}, schema)
		if err != nil {
			return err
		}
		each, err := l.begin(ctx, src)
		if err != nil {
			return err
		}
		l.sampled = sampling[*pipeline.Batch]{
			source: src, env: l.env(l.cfg.SourceNode()), splits: l.splits, each: each,
			take: func(_ context.Context, split int, b *pipeline.Batch) error {
				defer b.Release()
				l.asStored(split, b)
				return nil
			},
		}.run(ctx)
	}
	if !l.parses {
		return nil
	}
	r := wiring.TrainReading(l.cfg, 0)
	r.Side = "" // what is held out is looked at too
	opts := r.ParseOptions()
	src, err := r.OpenColumns(opts)
	if err != nil {
		return err
	}
	stage := parse.NewColumns(opts)
	if _, err := stage.Schema(src.Schema()); err != nil {
		return err
	}
	each, err := l.begin(ctx, src)
	if err != nil {
		return err
	}
	l.bad = &keptBad{} // the first reading met the same files
	env := l.env(r.Name)
	defer env.CloseResources() //nolint:errcheck // they were only read
	p, err := stage.Open(ctx, env)
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // see above
	var broken error
	l.sampled = sampling[*pipeline.Batch]{
		source: src, env: env, splits: l.splits, each: each,
		take: func(ctx context.Context, split int, b *pipeline.Batch) error {
			err := p.Process(ctx, b, func(out *pipeline.Batch) error { return l.examples(split, out) })
			if err != nil && ctx.Err() == nil {
				broken = err
			}
			return err
		},
	}.run(ctx)
	return broken
}

// asStored takes note of the rows of a batch as they are stored.
func (l *looking) asStored(split int, b *pipeline.Batch) {
	plain := func(name string) string {
		if name == pipeline.ColPosition || name == pipeline.ColBegin {
			return ""
		}
		return name
	}
	at, begins := int64(b.Origin().From), b.Begins()
	for i, end := range b.Positions() {
		if l.columns.Enough() {
			return
		}
		fields := peek.FromArrow(b.Record(), i, plain)
		for i := range fields {
			if kind := l.kinds[fields[i].Name]; kind != "" {
				fields[i].Type = kind
			}
		}
		l.columns.Add(fields)
		if begins != nil {
			at = begins[i]
		}
		if len(l.rows[split]) < l.opts.Rows {
			l.keep(split, at, end, fields)
		}
		at = end
	}
}

// examples takes note of examples as the model gets them, and releases them.
func (l *looking) examples(split int, b *pipeline.Batch) error {
	defer b.Release()
	if l.ids != nil {
		l.ids.add(b)
		if l.labels != nil {
			l.labels.add(b)
		}
		if p := b.Positions(); len(p) > 0 {
			if l.last == nil {
				l.last = map[int]int64{}
			}
			l.last[split] = p[len(p)-1]
		}
		return nil
	}
	sparse := map[string]bool{}
	var labels, masks []string // of the heads
	for _, h := range l.cfg.AllHeads() {
		labels, masks = append(labels, pipeline.LabelColumn(h.Name)), append(masks, pipeline.MaskColumn(h.Name))
	}
	named := func(name string) string {
		if pipeline.Reserved(name) && name != pipeline.ColWeight && !slices.Contains(labels, name) && !slices.Contains(masks, name) {
			return ""
		}
		return name
	}
	for _, f := range b.Record().Schema().Fields() {
		sparse[named(f.Name)] = isIDs(f)
	}
	for i, end := range b.Positions() {
		fields := peek.FromArrow(b.Record(), i, named)
		for j := range fields {
			if sparse[fields[j].Name] {
				fields[j].Value = ids(fields[j].Value)
			} else if isMissing(fields[j].Value) {
				fields[j].Value = nil
			}
		}
		fields = withoutMasks(fields, labels, masks)
		l.features.Add(fields)
		if j, ok := slices.BinarySearch(l.ends[split], end); ok {
			l.rows[split][j].Features = valuesOf(fields)
		}
	}
	return nil
}

// withoutMasks makes missing values of the labels that masks rule out, and leaves out the masks.
func withoutMasks(fields []peek.Field, labels, masks []string) []peek.Field {
	at := func(name string) int {
		return slices.IndexFunc(fields, func(f peek.Field) bool { return f.Name == name })
	}
	for i, mask := range masks {
		m, y := at(mask), at(labels[i])
		if m >= 0 && y >= 0 && fields[m].Value == false {
			fields[y].Value = nil
		}
	}
	return slices.DeleteFunc(fields, func(f peek.Field) bool { return slices.Contains(masks, f.Name) })
}

// isMissing reports whether a dense feature's value is NaN, which stands for a missing one.
func isMissing(v any) bool {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	return v == peek.NotFinite("NaN")
}

func isIDs(f arrow.Field) bool {
	list, ok := f.Type.(*arrow.ListType)
	return ok && list.Elem().ID() == arrow.INT64
}

// ids writes fids as slot:value.
func ids(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	for i, x := range list {
		if id, ok := x.(int64); ok {
			list[i] = fid.ID(id).String()
		}
	}
	return list
}

// info says what was seen.
func (l *looking) info(cfg *spec.Config) *result.SourceInfo {
	out := &result.SourceInfo{Source: l.source, Bounded: cfg.Source.Bounded(), Format: l.format, Rows: []result.RowInfo{}, Columns: []result.ColumnInfo{}}
	for i, s := range l.splits {
		info := result.SplitInfo{Name: s.Name, Start: int64(s.Start), End: int64(s.End)}
		if i < len(l.sampled.read) {
			info.Read = l.sampled.read[i]
			out.Read += info.Read
		}
		out.Splits = append(out.Splits, info)
	}
	for _, c := range l.columns.List {
		out.Columns = append(out.Columns, result.ColumnInfo{
			Name: c.Name, Type: c.Kind(), Rows: c.Rows, Share: share(c.Rows, l.columns.Records), Distinct: c.Distinct, Numbers: numbersOf(c), Examples: examplesOf(c),
		})
	}
	if cfg.Source.Columnar() {
		out.Format = cfg.Source.Value().UsualFormat()
	}
	l.describeFeatures(cfg, out)
	out.Rows = append(out.Rows, pickRows(l.rows, l.opts.Rows)...)
	if counts := l.bad.Counts(); len(counts) > 0 {
		out.BadRows, out.BadExamples = counts, l.bad.first
	}
	l.suggest(cfg, out)
	l.remark(out)
	return out
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func numbersOf(c *peek.Column) *result.NumbersInfo {
	if c.Numbers == 0 || c.Numbers != c.Values {
		return nil
	}
	return &result.NumbersInfo{Min: c.Min, Max: c.Max, Mean: c.Mean}
}

func examplesOf(c *peek.Column) []any {
	if c.Examples == nil {
		return []any{}
	}
	return c.Examples
}

// describeFeatures says what the job makes of the records.
func (l *looking) describeFeatures(cfg *spec.Config, out *result.SourceInfo) {
	if !l.parses {
		return
	}
	find := func(list []*peek.Column, name string) *peek.Column {
		if i := slices.IndexFunc(list, func(c *peek.Column) bool { return c.Name == name }); i >= 0 {
			return list[i]
		}
		return &peek.Column{Name: name}
	}
	add := func(name, column, kind string, slot int) *result.FeatureInfo {
		c := find(l.features.List, column)
		out.Features = append(out.Features, result.FeatureInfo{
			Name: name, Column: column, Kind: kind, Slot: slot, Rows: c.Rows, Share: share(c.Rows, l.features.Records), MaxValues: c.MaxValues,
			Distinct: c.Distinct, Numbers: numbersOf(c), Examples: examplesOf(c),
		})
		return &out.Features[len(out.Features)-1]
	}
	var stored []string
	for _, c := range l.columns.List {
		stored = append(stored, c.Name)
	}
	for _, f := range cfg.Parse.Features {
		slot := 0
		if f.Slot != nil && f.Kind == "sparse" {
			slot = *f.Slot
		}
		info := add(f.Name, f.Name, f.Kind, slot)
		if value, lists, of, ok := find(l.features.List, f.Name).Padding(); ok && f.Kind == "sparse" {
			_, signature, _ := strings.Cut(value, ":")
			l.notes = append(l.notes, padded(f.Name, signature, lists, of))
		}
		from := find(l.columns.List, f.Column)
		if s := l.found.seen[f.Name]; s != nil {
			// What is missing has become a default, which is no value.
			info.Rows, info.Share = s.Filled, share(s.Filled, s.Rows)
			if f.Kind == "dense" {
				l.describeNumbers(&f, s, info)
			}
		}
		if name := f.Indicator(); name != "" {
			add(name, name, "dense", 0)
		}
		if from.Rows == 0 && l.columns.Records > 0 && l.format != peek.LibFM && !joined(cfg, f.Column) {
			note := fmt.Sprintf("feature %q: none of %d records has a column %q", f.Name, l.columns.Records, f.Column)
			if near := nearest.Name(f.Column, stored); near != "" && near != f.Column {
				note += fmt.Sprintf("; did you mean %q?", near)
			}
			l.notes = append(l.notes, note)
		}
	}
	for _, h := range cfg.AllHeads() {
		add(cmp.Or(h.Name, "label"), pipeline.LabelColumn(h.Name), "label", 0)
	}
	if cfg.Parse.Weight != nil {
		add("weight", pipeline.ColWeight, "weight", 0)
	}
}

// describeNumbers says what a dense feature is, and whether a model can use it as it is.
func (l *looking) describeNumbers(f *spec.Feature, s *parse.Seen, info *result.FeatureInfo) {
	if s.Numbers == 0 {
		return
	}
	info.Numbers = &result.NumbersInfo{Min: s.Min, Max: s.Max, Mean: s.Mean()}
	if f.Standardise != nil && f.Standardise.Running != nil || !wiring.Unscaled(s) {
		return
	}
	info.Unscaled = true
	l.notes = append(l.notes, fmt.Sprintf(
		"feature %q goes from %v to %v, mean %v: as it is it drowns the others; give it standardise: running, or log, clip or buckets",
		f.Name, wiring.Short(s.Min), wiring.Short(s.Max), wiring.Short(s.Mean())))
}

// wholes says which features read whole numbers that are written as 667.0 as something else than 667.
func (l *looking) wholes(cfg *spec.Config) (out []string) {
	for _, f := range cfg.Parse.Features {
		i := slices.IndexFunc(l.columns.List, func(c *peek.Column) bool { return c.Name == f.Column })
		if i < 0 || joined(cfg, f.Column) {
			continue
		}
		c := l.columns.List[i]
		switch whole := c.Wholes > 0 && c.Integers+c.Wholes == c.Numbers && c.Numbers == c.Values; {
		case f.Kind == "sparse" && f.Type == "string" && c.Wholes > 0:
			out = append(out, fmt.Sprintf("feature %q: %d of %d values are written as 667.0, and with type: string that is another id than 667; use type: auto, or cut .0 off", f.Name, c.Wholes, c.Values))
		case f.Kind == "dense" && whole && peek.LooksLikeID(f.Column):
			out = append(out, fmt.Sprintf("feature %q is dense, and all of its %d values are whole numbers written as 667.0; if they are ids, make it sparse", f.Name, c.Values))
		}
	}
	return out
}

// joined reports whether a column comes from a side table.
func joined(c *spec.Config, column string) bool {
	for _, j := range c.Parse.Joins {
		for _, name := range j.Columns {
			if j.Prefix+name == column {
				return true
			}
		}
	}
	return false
}

// pickRows takes n rows from all splits in turn and returns them by split.
func pickRows(rows [][]result.RowInfo, n int) []result.RowInfo {
	take := make([]int, len(rows))
	for round, left := 0, n; left > 0; round++ {
		before := left
		for i := range rows {
			if round < len(rows[i]) && left > 0 {
				take[i]++
				left--
			}
		}
		if left == before {
			break
		}
	}
	var out []result.RowInfo
	for i, k := range take {
		out = append(out, rows[i][:k]...)
	}
	return out
}

// suggest writes a parse section for a source that has none.
func (l *looking) suggest(cfg *spec.Config, out *result.SourceInfo) {
	if l.misread != "" {
		l.notes = append(l.notes, l.misread)
		return
	}
	if l.parses || l.columns.Records == 0 {
		return
	}
	if l.format == peek.Text || l.format == peek.Binary {
		l.notes = append(l.notes, "the records are in no format that a job can read: tf_example, libfm, csv, tsv, jsonl (and Parquet)")
		return
	}
	out.Parse = peek.Propose(&l.columns, l.proposeOptions(cfg, "")).YAML
}

func (l *looking) proposeOptions(cfg *spec.Config, label string) peek.ProposeOptions {
	format := l.format
	if cfg.Source.Columnar() {
		format = cfg.Source.Value().UsualFormat()
	}
	return peek.ProposeOptions{
		Format: format, Header: l.header && cfg.Source.FileList() != nil, Names: l.names, Label: label,
		All: l.readAll(cfg) && !l.columns.Enough(),
	}
}

// remark adds what a person should know.
func (l *looking) remark(out *result.SourceInfo) {
	for _, err := range l.sampled.faults {
		l.notes = append(l.notes, "not read: "+failure.Plain(err))
	}
	if n := l.sampled.late + l.sampled.skipped; n > 0 {
		l.notes = append(l.notes, fmt.Sprintf("time was over after %v (--timeout) with %d of %d splits not read as far as wanted", l.timeout, n, len(l.splits)))
	}
	if out.Read == 0 && len(l.notes) == 0 {
		l.notes = append(l.notes, "there are no records yet")
	}
	out.Notes = l.notes
}
