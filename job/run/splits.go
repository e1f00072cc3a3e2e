package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// splitRecord is what is stored of a split beside its position, so that another run knows what the position means.
type splitRecord struct {
	// Identity identifies the split by its content ([pipeline.Split].Identity).
	Identity string `json:"id,omitempty"`
	// Seen identifies what was last seen of a split that has grown ([pipeline.Split].Seen). It is stored before any of that is read, so that no
	// position lies behind it.
	Seen string `json:"seen,omitempty"`
	// Of is what its positions depend on beside its content ([component.Positioned]).
	Of string `json:"of,omitempty"`
	// Cut is where its records end ([component.Delimited]).
	Cut string `json:"cut,omitempty"`
	// Set numbers the sources that were trained on: splits that were ever read together, or with one in common, are of one
	// source, whatever files come and go.
	Set int `json:"set"`
	// Orders are those of its epochs. An epoch that was begun in one is finished in it.
	Orders []epochsource.Order `json:"orders,omitempty"`
	// Parts are the splits that the one split of shuffle.one_split is made of.
	Parts []string `json:"parts,omitempty"`
}

// splitsKey is the worker state that holds the records of all splits, by the source's node and the split's name.
const splitsKey = "splits"

// knownSplits is what a run knows of its source's splits, from earlier runs and from looking at what there is.
type knownSplits struct {
	records map[string]splitRecord // by name
	names   []string               // of what there is to read, sorted
	set     int
	of, cut string          // see splitRecord
	follow  map[string]bool // see [wiring.Known]
	one     string          // the name of the one split
	orders  map[string][]epochsource.Order
	starts  map[string]pipeline.Position
	// What a person should know: splits that nothing was known of, orders and borders that changed.
	fresh, replaced, reordered []string
	twins                      [][2]string     // see alike
	packed                     []string        // see compressed
	longer                     []string        // splits that hold more than was known
	held                       map[string]bool // see inTheMidst
	again                      string
}

// identities are those of all splits, by name.
func (k *knownSplits) identities() map[string]string {
	if k == nil {
		return nil
	}
	out := make(map[string]string, len(k.records))
	for name, r := range k.records {
		if r.Identity != "" {
			out[name] = r.Identity
		}
	}
	return out
}

// seen is what was last seen of splits that have grown, by name.
func (k *knownSplits) seen() map[string]string {
	out := map[string]string{}
	for name, r := range k.records {
		if r.Seen != "" {
			out[name] = r.Seen
		}
	}
	return out
}

// reading is what is known, for building the source.
func (k *knownSplits) reading() wiring.Known {
	if k == nil {
		return wiring.Known{}
	}
	return wiring.Known{Identities: k.identities(), Seen: k.seen(), Follow: k.follow, Orders: k.orders, Starts: k.starts, OneSplit: k.one}
}

// source lists the splits of the source, those that are gone too.
func (k *knownSplits) source() []string {
	var out []string
	for name, r := range k.records {
		if r.Set == k.set {
			out = append(out, name)
		}
	}
	return out
}

// reading reads the training source with what is known of its splits.
func (t *trainer) reading(epochs int) wiring.Reading {
	r := wiring.TrainReading(t.cfg, epochs)
	r.Known, r.Log, r.Memory = t.known.reading(), t.log, t.opts.Memory
	return r
}

// know looks what there is to read, recognises what was read before, and stores what is new. It is called before this run
// is a member, so before it can push anything, and again whenever it is given work. Runs that begin at once find and store
// the same, or look again: a file may grow between them.
func (t *trainer) know(ctx context.Context) error {
	first := t.known == nil
	if _, stream := t.cfg.Source.Stream(); stream { // it has memories of its own ([pipeline.Rememberer])
		if !first {
			return nil
		}
		splits, err := t.plan.Splits(ctx)
		if err == nil {
			t.known = &knownSplits{names: t.addSplits(splits)}
			err = t.begins(ctx, splits)
		}
		return err
	}
	for agreed := false; !agreed; {
		var err error
		if agreed, err = t.probe(ctx); err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	if err := t.begins(ctx, nil); err != nil {
		return err
	}
	var err error // the plan of the whole job, now that its splits are known
	t.plan, err = wiring.TrainGraph(t.cfg, t.model, t.reading(t.cfg.Epochs), nil, nil, trainstep.StepOptions{Seed: t.cfg.Seed})
	return err
}

// mostBegun is how many splits are named where reading begins.
const mostBegun = 8

// begins says where a run begins that continues from nothing: there is no snapshot, and nothing of the source was trained on.
func (t *trainer) begins(ctx context.Context, splits []pipeline.Split) error {
	if t.past != nil || t.shards.Restored() != nil {
		return nil
	}
	progress, err := t.shards.Progress(ctx, t.cfg.SourceNode())
	if err != nil || len(progress) > 0 {
		return err
	}
	no := "no snapshot yet in " + stored.SnapshotsIn(t.cfg)
	if t.cfg.PS.Remote() {
		no = "no snapshot yet at the shards of ps.addresses"
	}
	section, ok := t.cfg.Source.Value().(component.Beginning)
	if !ok {
		t.notice("%s: starting from the beginning of the source", no)
		return nil
	}
	where, not := section.Begins()
	var at []string
	for _, s := range splits[:min(len(splits), mostBegun)] {
		at = append(at, fmt.Sprintf("%s at %d", s.Name, s.Start))
	}
	if more := len(splits) - mostBegun; more > 0 {
		at = append(at, fmt.Sprintf("and %d more", more))
	}
	text := no + ": reading begins " + where
	if len(at) > 0 {
		text += ": " + strings.Join(at, ", ")
	}
	if not != "" {
		text += "; " + not
	}
	t.notice("%s", text)
	return nil
}

// probe stores what of the source is new, and reports whether that is what is stored: another run may have stored something else at the same time.
func (t *trainer) probe(ctx context.Context) (agreed bool, _ error) {
	node := t.cfg.SourceNode()
	all := map[string]map[string]splitRecord{}
	before, err := t.shards.State(ctx, splitsKey)
	if err == nil && before != nil {
		err = json.Unmarshal(before, &all)
	}
	if err != nil {
		return false, fmt.Errorf("job: what is known of splits: %w", err)
	}
	progress, err := t.shards.Progress(ctx, node)
	if err != nil {
		return false, err
	}
	var state stored.Trainer
	b, err := t.shards.State(ctx, stored.TrainerKey)
	if err == nil && b != nil {
		err = json.Unmarshal(b, &state)
	}
	if err != nil {
		return false, fmt.Errorf("job: the trainer state: %w", err)
	}
	k := &knownSplits{records: maps.Clone(all[node])}
	if k.records == nil {
		k.records = map[string]splitRecord{}
	}
	k.follow = k.followed(t.cfg, progress)
	r := wiring.TrainReading(t.cfg, 0)
	r.Known = k.reading()
	there, err := r.Splits(ctx)
	if err != nil {
		return false, err
	}
	k.held = k.inTheMidst(there, t.cfg, progress)
	if k.grown(there) { // and may have more splits now
		r.Known = k.reading()
		if there, err = r.Splits(ctx); err != nil {
			return false, err
		}
	}
	if err := k.sameStream(t.cfg, progress); err != nil {
		return false, err
	}
	if err := k.sameRecords(t.cfg, progress, &state); err != nil {
		return false, err
	}
	k.compare(there, t.cfg, progress, &state)
	k.twins, k.packed = alike(there), compressed(there, k.fresh, k.records)
	if err := t.past.unchanged(k); err != nil {
		return false, err
	}
	t.known = k
	all[node] = k.records
	now, err := json.Marshal(all)
	if err != nil {
		return false, fmt.Errorf("job: what is known of splits: %w", err)
	}
	if string(now) == string(before) {
		return true, nil
	}
	if err := t.shards.SetState(ctx, splitsKey, now); err != nil {
		return false, fmt.Errorf("job: storing what is known of splits: %w", err)
	}
	after, err := t.shards.State(ctx, splitsKey)
	if err != nil {
		return false, fmt.Errorf("job: what is known of splits: %w", err)
	}
	return string(after) == string(now), nil
}

// followed are the splits that are in their first epoch, in the order of their files: what was read of one is the bytes before its position, and what
// it has got since is read next, whatever it is called by then. Of others it could not be: it would have no part in epochs that have ended.
func (k *knownSplits) followed(cfg *spec.Config, progress map[string]ps.Progress) map[string]bool {
	out := map[string]bool{}
	for name, r := range k.records {
		rows, p := cfg.Shuffle.Rows, progress[name]
		if _, ok := progress[name]; ok && len(r.Orders) > 0 {
			rows = r.Orders[0].ShuffleRows
		}
		epoch, _ := max(p.Position, 0).Epoch()
		out[name] = rows == 0 && epoch == 0 && !cfg.Shuffle.OneSplit
	}
	for _, r := range k.records {
		for _, part := range r.Parts { // epochs of the whole are its epochs too
			out[part] = false
		}
	}
	return out
}

// sameStream refuses to continue from positions of examples that are others now.
func (k *knownSplits) sameStream(cfg *spec.Config, progress map[string]ps.Progress) error {
	p, ok := cfg.Source.Value().(component.Positioned)
	if !ok {
		return nil
	}
	k.of = p.Positions(cfg.Seed)
	for _, name := range slices.Sorted(maps.Keys(k.records)) {
		if r := k.records[name]; r.Of != "" && r.Of != k.of && progress[name].Rows > 0 {
			return fault.Config("job: %s has changed: %d examples were trained on of %s, and the job has %s, where the same positions are other examples; set it back, or give the job another source_name, under which the source is read from its beginning",
				cfg.SourceKey()+"."+cfg.Source.Name(), rowsOf(progress), r.Of, k.of)
		}
	}
	return nil
}

// sameRecords refuses to finish an epoch whose positions count records where those end elsewhere now: some would be trained on twice, and others never.
func (k *knownSplits) sameRecords(cfg *spec.Config, progress map[string]ps.Progress, state *stored.Trainer) error {
	d, ok := cfg.Source.Value().(component.Delimited)
	if !ok {
		return nil
	}
	k.cut = d.Delimits(component.Opening{Format: cfg.Parse.Format, Header: cfg.Parse.Header})
	for _, name := range slices.Sorted(maps.Keys(k.records)) {
		r := k.records[name]
		epoch, at := max(progress[name].Position, 0).Epoch()
		if at > 0 && epoch >= state.Epochs && r.Cut != "" && r.Cut != k.cut && (d.Counts(name) || len(r.Parts) > 0 || shuffled(r.Orders, epoch)) {
			return fault.Config("job: parse.format, parse.header or complete of the source has changed in the midst of an epoch of %s: its positions count %s, and the job reads %s, so some would be trained on twice and others never; set it back until the epoch is over, or give the job another source_name, under which the source is read from its beginning",
				name, r.Cut, k.cut)
		}
	}
	return nil
}

// grown takes up what splits that are known hold by now, and reports whether some hold more than was known.
func (k *knownSplits) grown(there []pipeline.Split) (grown bool) {
	for _, s := range there {
		if r, ok := k.records[s.Name]; ok && r.Seen != s.Seen {
			k.longer = append(k.longer, s.Name)
			if k.held[s.Name] {
				continue
			}
			r.Seen, grown = s.Seen, true
			k.records[s.Name] = r
		}
	}
	return grown
}

// inTheMidst are the splits in the midst of an epoch whose order is that of all rows that there were when it began: what they have got since is not
// read before it ends, or rows of it would be trained on twice and others never.
func (k *knownSplits) inTheMidst(there []pipeline.Split, cfg *spec.Config, progress map[string]ps.Progress) map[string]bool {
	out := map[string]bool{}
	if cfg.Shuffle.OneSplit {
		for name, r := range k.records {
			_, at := max(progress[name].Position, 0).Epoch()
			for _, part := range r.Parts {
				out[part] = out[part] || at > 0 && r.Identity == epochsource.Together(there)
			}
		}
		return out
	}
	for _, s := range there {
		epoch, at := max(progress[s.Name].Position, 0).Epoch()
		out[s.Name] = at > 0 && shuffled(k.records[s.Name].Orders, epoch)
	}
	return out
}

// shuffled reports whether an epoch of a split has an order that is not its own.
func shuffled(orders []epochsource.Order, epoch int) (is bool) {
	for i, o := range orders {
		if i == 0 || o.From <= epoch {
			is = o.ShuffleRows != 0
		}
	}
	return is
}

// holdsBack reports whether what some splits have got since is held back until their epoch has ended.
func (k *knownSplits) holdsBack() bool {
	return slices.ContainsFunc(k.longer, func(name string) bool { return k.held[name] })
}

// notRead are the splits that are longer than they were and of which no more is read by the run: their order is that of whole epochs, and those that
// the job has are over or begun.
func (k *knownSplits) notRead(cfg *spec.Config, progress map[string]ps.Progress) (out []string) {
	for _, name := range k.longer {
		of := name
		if cfg.Shuffle.OneSplit {
			of = k.one
		}
		p, ok := progress[of]
		epoch, at := max(p.Position, 0).Epoch()
		if at > 0 {
			epoch++
		}
		whole := cfg.Shuffle.OneSplit || shuffled(k.records[of].Orders, epoch-1)
		if ok && whole && epoch >= cfg.Epochs {
			out = append(out, name)
		}
	}
	return out
}

// laterRun are the splits that are longer than they were and of which a run on shards in other processes reads no more, though it has an epoch that could.
func (k *knownSplits) laterRun(notRead []string) (out []string) {
	for _, name := range k.longer {
		if k.held[name] && !slices.Contains(notRead, name) {
			out = append(out, name)
		}
	}
	return out
}

// compressed are the new ones of the splits that are there which look like files that were read before and are gone: compressed when a log was rotated, app.log.1.gz for what was app.log
// once. Their bytes are others, and the positions of what they hold too. before has those that were known.
func compressed[T any](there []pipeline.Split, fresh []string, before map[string]T) (out []string) {
	gone := maps.Clone(before)
	for _, s := range there {
		delete(gone, s.Name)
	}
	for _, name := range fresh {
		stem, gz := strings.CutSuffix(path.Base(name), ".gz")
		if !gz {
			continue
		}
		for known := range gone {
			base, _, _ := strings.Cut(path.Base(known), "~")
			if rest, ok := strings.CutPrefix(stem, base); ok && (rest == "" || strings.ContainsAny(rest[:1], ".-_")) {
				out = append(out, name)
				break
			}
		}
	}
	return out
}

// compare finds what the run reads of what there is, given what is known.
func (k *knownSplits) compare(there []pipeline.Split, cfg *spec.Config, progress map[string]ps.Progress, state *stored.Trainer) {
	before := maps.Clone(k.records)
	newest := 0
	for _, r := range before {
		newest = max(newest, r.Set)
	}
	read := there
	k.one = epochsource.OneSplitName
	var parts []string
	for _, s := range there {
		parts = append(parts, s.Name)
		k.set = max(k.set, before[s.Name].Set)
	}
	if cfg.Shuffle.OneSplit {
		id := epochsource.Together(there)
		for n := 2; ; n++ {
			if r, ok := before[k.one]; !ok || r.Identity == id {
				break
			}
			k.one = fmt.Sprintf("%s~%d", epochsource.OneSplitName, n)
		}
		k.set = max(k.set, before[k.one].Set)
		read = []pipeline.Split{{Name: k.one, Identity: id}}
	}
	if k.set == 0 {
		k.set = newest + 1
	}
	for _, s := range there {
		r := k.records[s.Name]
		r.Identity, r.Of, r.Cut, r.Set = s.Identity, k.of, k.cut, k.set
		if !k.held[s.Name] {
			r.Seen = s.Seen
		}
		k.records[s.Name] = r
	}
	k.orders, k.starts = map[string][]epochsource.Order{}, map[string]pipeline.Position{}
	for _, s := range read {
		k.names = append(k.names, s.Name)
		r := k.records[s.Name]
		r.Identity, r.Of, r.Cut, r.Set = s.Identity, k.of, k.cut, k.set
		if cfg.Shuffle.OneSplit {
			r.Parts = parts
		}
		position := pipeline.NoPosition
		if p, ok := progress[s.Name]; ok {
			position = p.Position
		}
		position = k.begin(s.Name, position, parts, before, progress, cfg, state)
		epoch, at := max(position, 0).Epoch()
		order := epochsource.Order{ShuffleRows: cfg.Shuffle.Rows}
		if order.ShuffleRows != 0 {
			order.Seed = &cfg.Seed
		}
		r.Orders = slices.Clone(r.Orders)
		for i := range r.Orders { // which had no seed before there could be two
			if o := &r.Orders[i]; o.ShuffleRows != 0 && o.Seed == nil {
				o.Seed = &cfg.Seed
			}
		}
		if n := len(r.Orders); position < 0 || n == 0 {
			r.Orders = []epochsource.Order{order}
		} else if !sameOrder(r.Orders[n-1], order) {
			if at > 0 { // the epoch that was begun ends as it began
				epoch++
			}
			order.From = epoch
			r.Orders = append(slices.DeleteFunc(r.Orders, func(o epochsource.Order) bool { return o.From >= epoch && epoch > 0 }), order)
			if epoch == 0 {
				r.Orders = r.Orders[len(r.Orders)-1:]
			}
			if at > 0 && epoch > state.Epochs {
				k.reordered = append(k.reordered, s.Name)
			}
		}
		k.orders[s.Name], k.records[s.Name] = r.Orders, r
	}
}

// sameOrder reports whether two orders are the same but for where they begin.
func sameOrder(a, b epochsource.Order) bool {
	return a.ShuffleRows == b.ShuffleRows && (a.Seed == nil) == (b.Seed == nil) && (a.Seed == nil || *a.Seed == *b.Seed)
}

// begin finds where a split continues that is at a position, or has none.
func (k *knownSplits) begin(split string, at pipeline.Position, parts []string, before map[string]splitRecord, progress map[string]ps.Progress, cfg *spec.Config, state *stored.Trainer) pipeline.Position {
	// With and without shuffle.one_split the rows of an epoch are those of the same files: whole epochs that were read the
	// other way count.
	others := parts
	if !cfg.Shuffle.OneSplit {
		others = slices.DeleteFunc(slices.Collect(maps.Keys(before)), func(name string) bool { return !slices.Contains(before[name].Parts, split) })
	}
	otherwise := pipeline.NoPosition
	for _, name := range others {
		if p, ok := progress[name]; ok && before[name].Set == k.set {
			otherwise = max(otherwise, p.Position)
		}
	}
	added := cfg.Shuffle.OneSplit && slices.ContainsFunc(parts, func(part string) bool { return before[part].Set != k.set })
	start := position.AtEpoch(state.Epochs, 0)
	if otherwise > at && start > at && !added && state.Source == sourceLabel(cfg.SourceNode(), k.set) {
		if k.starts[split] = start; state.Epochs < cfg.Epochs && otherwise > start {
			k.again = fmt.Sprintf("shuffle.one_split has changed: epoch %d is read from its beginning", state.Epochs+1)
		}
		return start
	}
	if at >= 0 {
		return at
	}
	base, _, numbered := strings.Cut(split, "~")
	if _, ok := before[split]; !ok && numbered && before[base].Identity != "" {
		k.replaced = append(k.replaced, split)
	} else {
		k.fresh = append(k.fresh, split)
	}
	return at
}

// sourceLabel names a source in the trainer's state.
func sourceLabel(node string, set int) string { return fmt.Sprintf("%s %d", node, set) }

// sayWhoWaits says that there are more workers here than splits for them.
func (t *trainer) sayWhoWaits() {
	if n, workers := len(t.known.names), t.cfg.Train.Workers; n > 0 && n < workers {
		t.notice("%d of %d workers have nothing to do: each reads splits of its own, and the source has %d; splits are files, row groups of Parquet or partitions", workers-n, workers, n)
	}
}

// sayWhatIsTwice says of files that hold the same, and of those that look like others that were read before.
func (t *trainer) sayWhatIsTwice() {
	for _, twins := range t.known.twins {
		t.notice("the same bytes, as far as was looked, so their examples are trained on twice: %s and %s; leave one of them out", twins[0], twins[1])
	}
	if packed := t.known.packed; len(packed) > 0 {
		t.notice("files that were read before and are compressed now, as it seems: %s; their bytes are others, so that their examples are trained on twice; name files so that compressed ones are left out", someOf(packed))
	}
}

// alike finds splits that hold the same and are too long for that to be by chance.
func alike(there []pipeline.Split) (out [][2]string) {
	const least = 1 << 10 // bytes: files with a header and nothing else are often the same
	first := map[string]string{}
	for _, s := range there {
		if other, ok := first[s.Identity]; ok && filesplit.SizeOf(s.Identity) >= least {
			out = append(out, [2]string{other, s.Name})
			continue
		}
		first[s.Identity] = s.Name
	}
	return out
}

// someOf lists the first of some names, and how many more there are.
func someOf(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// sayWhatIsRead logs what of the source was read before and what will be.
func (t *trainer) sayWhatIsRead(ctx context.Context) error {
	k := t.known
	if _, stream := t.cfg.Source.Stream(); stream || t.shards.Restored() == nil {
		return nil // it begins, or the offsets say it
	}
	state, err := stored.RestoreTrainer(ctx, t.shards, t.sourceName(), nil)
	if err != nil {
		return err
	}
	progress, err := t.progress(ctx)
	if err != nil {
		return err
	}
	rows := rowsOf(progress)
	switch {
	case len(progress) == 0:
		t.notice("nothing of this source was trained on before: %s will be read from the beginning; epochs, learning rate and early stop start over", someOf(k.names))
		return nil
	case state.Stopped:
		t.notice("%d examples of this source were trained on before, and train.early_stop has ended it after epoch %d", rows, state.Epochs)
	case state.Epochs >= t.cfg.Epochs:
		t.notice("%d examples of this source were trained on before, in %d epoch(s), and are not read again", rows, state.Epochs)
	case state.Epochs > 0:
		t.notice("%d examples of this source were trained on before, in %d epoch(s); continuing with epoch %d of %d", rows, state.Epochs, state.Epochs+1, t.cfg.Epochs)
	default:
		t.notice("%d examples of this source were trained on before; continuing after them", rows)
	}
	if k.again != "" {
		t.notice("%s", k.again)
	}
	if len(k.reordered) > 0 {
		t.notice("shuffle.rows or seed has changed: the epoch that was begun is finished in its order (%s)", someOf(k.reordered))
	}
	names := k.notRead(t.cfg, progress)
	if len(names) > 0 {
		t.notice("longer than before, of which no more is read: %s; the order of a shuffle or of one_split is that of whole epochs, so what was appended is in the next one (raise epochs)", someOf(names))
	}
	if later := k.laterRun(names); t.cfg.PS.Remote() && len(later) > 0 {
		t.notice("longer than before: %s; the epoch that was begun is finished without what was appended, and with shards in other processes (ps.addresses) so is what follows in this run: the next run reads it", someOf(later))
	}
	if len(k.replaced) > 0 {
		t.notice("not what was read before under that name: %s will be read from the beginning", someOf(k.replaced))
	}
	if len(k.fresh) > 0 {
		t.notice("not read before: %s will be read from the beginning", someOf(k.fresh))
	}
	return nil
}
