package inspect

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// NeedOptions say by what the memory of a job's tables is reckoned. Without any of them only the limits of retention are known.
type NeedOptions struct {
	// IDs is how many different ids sparse features will have, by name. Of features that share a slot the largest counts.
	IDs map[string]int64
	// Sample is how many records are read of the source, from the beginning of all splits alike, to count their ids; 0: none. All of them are held: some 50 bytes each.
	Sample int
	// Examples is how many different examples there will be, for what lies beyond the sample; 0: what the source says, if it does.
	Examples int64
	// Timeout bounds the reading; 0: [Timeout].
	Timeout time.Duration
	// Memory is what tables of this process may take; nil: nobody knows.
	Memory *table.Memory
}

// Need reckons what the tables of a job will take before it runs, each by its rows and what a row takes by its dimensions, optimizers and storage
// ([param.Table.RowBytes]). How many rows there will be is an upper bound as far as ids expire or wait for occurrences (retention). From a sample
// it is an estimate: the ids that were found, and for more examples the growth of Heaps' law (H. S. Heaps, Information Retrieval, 1978, section 7.5), V(n) = K n^b with b of
// the sample's two halves, which is too much where the ids that there are end. Errors: [pipeline.ErrConfig] for a name that is no sparse feature's, those of reading.
func Need(ctx context.Context, cfg *spec.Config, o NeedOptions) (*result.MemoryNeed, error) {
	m, err := wiring.Model(cfg)
	if err != nil {
		return nil, err
	}
	l := m.Layout()
	counts := &idCounts{of: map[string]int{}, seen: make([]map[int64]struct{}, len(l.Tables))}
	known := make([]map[int]int64, len(l.Tables)) // by slot
	var names []string
	for _, f := range m.Features() {
		if f.Kind != model.Sparse {
			continue
		}
		counts.of[f.Name], names = f.Table, append(names, f.Name)
		n, ok := o.IDs[f.Name]
		if !ok {
			continue
		}
		if known[f.Table] == nil {
			known[f.Table] = map[int]int64{}
		}
		slot := slotOf(cfg, f.Name)
		known[f.Table][slot] = max(known[f.Table][slot], n)
	}
	for name, n := range o.IDs {
		if _, ok := counts.of[name]; !ok {
			hint := ""
			if near := nearest.Name(name, names); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, fault.Config("job: --ids: %q is no sparse feature%s", name, hint)
		}
		if n < 0 {
			return nil, fault.Config("job: --ids: %s has %d ids; it must be at least 0", name, n)
		}
	}
	out := &result.MemoryNeed{Shards: cfg.PS.Shards, Remote: cfg.PS.Remote(), Dense: 4 * int64(l.DenseLen()+l.DenseStateLen()), Tables: []result.TableNeed{}}
	if out.Remote {
		out.Shards = len(cfg.PS.Addresses)
	}
	whole := false
	if o.Sample > 0 {
		sample, err := counts.read(ctx, cfg, o)
		if err != nil {
			return nil, err
		}
		whole, out.Sampled = sample.readAll(cfg), counts.examples
		out.BadRows, out.BadExamples = sample.bad.Counts(), sample.bad.first
		counts.bad = out.NumBad()
		out.Remarks = append(counts.padded(cfg), sample.wholes(cfg)...)
	}
	out.Examples = max(cmp.Or(o.Examples, cfg.Source.NumExamples()), out.Sampled)
	for t, spec := range l.Tables {
		need := result.TableNeed{Name: spec.Name, RowBytes: spec.RowBytes(), Rows: -1}
		if o.Sample > 0 {
			need.Rows, need.Basis = counts.estimate(t, out.Examples, whole)
		}
		if sum, missing := int64(0), 0; known[t] != nil {
			for name, of := range counts.of {
				if _, ok := o.IDs[name]; of == t && !ok {
					missing++
				}
			}
			for _, n := range known[t] {
				sum += n
			}
			switch {
			case missing == 0:
				need.Rows, need.Basis = sum, "--ids"
			case sum > need.Rows:
				need.Rows, need.Basis = sum, fmt.Sprintf("--ids, without %d features that it does not name", missing)
			}
		}
		if most := l.Retention.MaxRows(spec); most > 0 && (need.Rows < 0 || need.Rows > most) {
			need.Rows, need.Basis = most, "retention.table_memory"
		}
		if need.Rows >= 0 {
			need.Bytes = need.Rows * need.RowBytes
			out.Bytes += need.Bytes
		} else {
			out.Unknown = true
		}
		need.Filter = l.Retention.FilterBytes()
		out.Bytes += need.Filter
		out.Tables = append(out.Tables, need)
	}
	out.Process = out.Bytes
	if out.Remote {
		out.Process = (out.Bytes + int64(out.Shards) - 1) / int64(out.Shards)
		place := ps.NewPlacement(l, out.Shards)
		for s := range out.Shards {
			if each := 4 * int64(place.DenseLen(s)); each > int64(cfg.PS.MaxMessage) {
				out.Warning = fmt.Sprintf("shard %d answers with its layers, %d bytes, and ps.max_message is %d: raise it for all processes, or take more shards, of which one has each tensor",
					s, each, int64(cfg.PS.MaxMessage))
			}
		}
	}
	limit, of := o.Memory.Limit()
	if least := wiring.LeastBytes(cfg, m); limit > 0 && least > limit {
		out.Warning = fmt.Sprintf("layers and batches of %d worker(s) will take at least %d bytes, and the process may have %d (%s): take a smaller train.batch, fewer train.workers or narrower layers",
			cfg.Train.Workers, least, limit, of)
	}
	if p := int64(cfg.PS.Memory); p > 0 {
		limit, of = p, "ps.memory"
	}
	if limit > 0 {
		out.Limit, out.LimitOf = limit, of
		if out.Process > limit {
			out.Warning = fmt.Sprintf("the tables will take %d bytes in one process, which may have %d (%s): bound them (retention.table_memory, expire, occurrences), take smaller rows (dim, optimizer, ps.storage), or more shards on machines of their own (ps.addresses)",
				out.Process, limit, of)
		}
	}
	return out, nil
}

// slotOf is the slot of a sparse feature, -1 without one.
func slotOf(cfg *spec.Config, name string) int {
	for _, f := range cfg.Parse.Features {
		if f.Name == name && f.Slot != nil {
			return *f.Slot
		}
	}
	return -1
}

// idCounts counts the different ids of each table in a sample.
type idCounts struct {
	of       map[string]int // table of a feature
	seen     []map[int64]struct{}
	examples int64
	bad      int64 // records that were left out
	// padding looks for values that fill up lists, by feature.
	padding map[string]*peek.Padding
	// curve is how many ids there were of each table after so many examples, batch by batch.
	curve []countedIDs
}

type countedIDs struct {
	examples int64
	ids      []int
}

// read reads a sample.
func (c *idCounts) read(ctx context.Context, cfg *spec.Config, o NeedOptions) (*looking, error) {
	for t := range c.seen {
		c.seen[t] = map[int64]struct{}{}
	}
	l := &looking{want: o.Sample, timeout: cmp.Or(o.Timeout, Timeout), bad: &keptBad{}, format: cfg.Parse.Format, parses: true, ids: c}
	return l, l.read(ctx, cfg)
}

// add counts the ids of a batch.
func (c *idCounts) add(b *pipeline.Batch) {
	rec := b.Record()
	for i, f := range rec.Schema().Fields() {
		t, ok := c.of[f.Name]
		list, is := rec.Column(i).(*array.List)
		if !ok || !is {
			continue
		}
		values, is := list.ListValues().(*array.Int64)
		if !is {
			continue
		}
		for row := range list.Len() {
			from, to := list.ValueOffsets(row)
			ids := values.Int64Values()[from:to]
			for _, id := range ids {
				c.seen[t][id] = struct{}{}
			}
			if len(ids) > 1 {
				c.paddingOf(f.Name).Add(len(ids), func(i int) string { return strconv.FormatInt(int64(fid.ID(ids[i]).Signature()), 10) })
			}
		}
	}
	c.examples += rec.NumRows()
	at := countedIDs{examples: c.examples}
	for _, seen := range c.seen {
		at.ids = append(at.ids, len(seen))
	}
	c.curve = append(c.curve, at)
}

// paddingOf looks for padding in the lists of a feature.
func (c *idCounts) paddingOf(name string) *peek.Padding {
	if c.padding == nil {
		c.padding = map[string]*peek.Padding{}
	}
	if c.padding[name] == nil {
		c.padding[name] = &peek.Padding{}
	}
	return c.padding[name]
}

// padded says which features train an id that fills up lists.
func (c *idCounts) padded(cfg *spec.Config) (out []string) {
	for _, f := range cfg.Parse.Features {
		p := c.padding[f.Name]
		if p == nil {
			continue
		}
		if value, lists, of, ok := p.Found(); ok {
			out = append(out, padded(f.Name, value, lists, of))
		}
	}
	return out
}

// padded says that an id fills up the lists of a feature.
func padded(feature, id string, lists, of int64) string {
	if len(id) > len("999999") { // of a text that was hashed
		return fmt.Sprintf("feature %q: one id ends or begins %d of %d lists and is trained, signature %s; if it fills lists up, name its text in ignore", feature, lists, of, id)
	}
	return fmt.Sprintf("feature %q: id %s ends or begins %d of %d lists and is trained; if it fills lists up, set ignore: [%s]", feature, id, lists, of, id)
}

// estimate is how many ids of a table so many examples have, and by what that is known.
func (c *idCounts) estimate(t int, examples int64, whole bool) (rows int64, basis string) {
	found := len(c.seen[t])
	switch {
	case whole && c.bad > 0:
		return int64(found), fmt.Sprintf("counted in %d of all %d records of the source; the others are bad rows", c.examples, c.examples+c.bad)
	case whole:
		return int64(found), fmt.Sprintf("counted in all %d examples of the source", c.examples)
	case examples <= c.examples || found == 0:
		return int64(found), fmt.Sprintf("counted in %d examples, and more will come: --examples says how many", c.examples)
	}
	b := 1.
	half, _ := slices.BinarySearchFunc(c.curve, (c.examples+1)/2, func(at countedIDs, n int64) int { return cmp.Compare(at.examples, n) })
	if at := c.curve[half]; at.examples < c.examples && at.ids[t] > 0 {
		b = math.Log(float64(found)/float64(at.ids[t])) / math.Log(float64(c.examples)/float64(at.examples))
	}
	b = min(b, 1)
	rows = int64(math.Ceil(float64(found) * math.Pow(float64(examples)/float64(c.examples), b)))
	return rows, fmt.Sprintf("estimate: %d in %d examples, growing as their number to the power of %.2f, for %d", found, c.examples, b, examples)
}
