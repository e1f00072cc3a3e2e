package spec

import (
	"fmt"
	"time"

	"github.com/monolith-go/monolith/model/param"
)

// Retention says which ids have rows in the embedding tables, and for how long. Without it every id that was trained on has one for ever.
// Everything goes by the examples trained on and their event times, never by the clock: runs are the same however often they were killed, and on any
// number of shards. It needs lookups in step with training (train.prefetch.lookup: 0, train.prefetch.push: 0).
type Retention struct {
	// Expire is after how much event time without an occurrence an id has no row any more: it starts over when it comes again. Event times
	// are those of Kafka's records and of the synthetic stream; files have none. 0: never.
	Expire Duration `yaml:"expire" default:"0" min:"0"`
	// MaxJump is how far the newest event time of a batch may be ahead of those before and be believed at once. One that is further ahead counts as no newer than
	// they were, until eight batches in a row are so far ahead. 0 believes every time.
	MaxJump Duration `yaml:"max_jump" default:"24h" min:"0"`
	// MaxStep bounds how far one batch moves the event time. Without it, one record of the future or
	// a rest of the stream that is longer than expire lets every row expire with one batch. With it, a row
	// lasts for expire/max_step batches at least after its last update. Choose a step well above the event
	// time that a batch spans; with a smaller one, rows expire late. 0: no bound.
	MaxStep Duration `yaml:"max_step" default:"0" min:"0"`
	// Occurrences is how often an id must have occurred before it gets a row. Until then it trains nothing, and a lookup finds its initial value. 0: it gets one
	// at once.
	Occurrences int `yaml:"occurrences" default:"0" min:"0" max:"1000000000"`
	// Admission is how occurrences are told: exact counts those of each id, which takes some 40 bytes for each that waits, until it expires; probabilistic
	// keeps nothing and admits 95 of 100 ids within that many occurrences, 1 - 0.05^(c/occurrences) of them at c; linear admits c/occurrences of them. hash_filter counts
	// to 15 in cells of two bytes, three for two ids, and is wrong for the few that share one: they are admitted too soon. When filter_capacity ids are in it, ever more are
	// admitted at once. sliding_hash_filter forgets the ids that came first instead. An id whose row has expired is still counted there.
	Admission string `yaml:"admission" default:"exact" enum:"exact|probabilistic|linear|hash_filter|sliding_hash_filter"`
	// FilterCapacity is for how many ids the filter of each table has room, on all shards together; its memory is taken from ps.memory: 3 bytes for an id,
	// or 2.4 and a share for the split that is kept empty. Another number, or filter_splits, begins to count from 0.
	FilterCapacity int `yaml:"filter_capacity" default:"10000000" min:"4096" max:"1000000000000"`
	// FilterSplits is into how many parts a sliding filter is cut: what is forgotten at once is a part of that many less one.
	FilterSplits int `yaml:"filter_splits" default:"7" min:"5" max:"64"`
	// TableMemory is how much memory the rows of each table may take, on all shards together. Each 4096th of all ids by hash, or
	// a smaller part, has its share. 0: there is no limit but ps.memory. What fits, and what expire and occurrences would let go, is seen
	// in a snapshot: monolith inspect SNAPSHOT --slots shows rows, memory, occurrences and ages of each slot.
	TableMemory Size `yaml:"table_memory" default:"0" min:"0"`
	// WhenFull is what happens there: evict_oldest removes rows that were not updated for long, evict_rarest those with the fewest
	// occurrences, an eighth of a share at a time; refuse gives no new rows.
	WhenFull string `yaml:"when_full" default:"evict_oldest" enum:"refuse|evict_oldest|evict_rarest"`
	// Features have other numbers than the rest.
	Features []FeatureRetention `yaml:"features"`
}

// FeatureRetention is what the ids of one feature have of their own. Features that share a slot have the same.
type FeatureRetention struct {
	// Name is the feature's.
	Name string `yaml:"name" required:"true"`
	// Expire is retention.expire for its ids.
	Expire *Duration `yaml:"expire" min:"0"`
	// Occurrences is retention.occurrences for its ids.
	Occurrences *int `yaml:"occurrences" min:"0" max:"1000000000"`
}

// RetentionRules is the retention of the model's tables; the zero value when there is none.
func (c *Config) RetentionRules() param.Retention {
	r := &c.Retention
	rules := param.Retention{
		Default: param.SlotRetention{Expire: time.Duration(r.Expire).Microseconds(), Occurrences: uint32(r.Occurrences)},
		MaxJump: time.Duration(r.MaxJump).Microseconds(), MaxStep: time.Duration(r.MaxStep).Microseconds(), MaxBytes: int64(r.TableMemory),
	}
	for _, own := range r.Features {
		slot, ok := c.slotOf(own.Name)
		if !ok {
			continue // a fault
		}
		s := rules.Default
		if own.Expire != nil {
			s.Expire = time.Duration(*own.Expire).Microseconds()
		}
		if own.Occurrences != nil {
			s.Occurrences = uint32(*own.Occurrences)
		}
		if rules.Slots == nil {
			rules.Slots = map[int]param.SlotRetention{}
		}
		rules.Slots[slot] = s
	}
	if rules.Waits() {
		rules.Admission = param.Admission(r.Admission)
		if rules.Admission.Filters() {
			rules.FilterCapacity = int64(r.FilterCapacity)
		}
		if rules.Admission == param.AdmitSliding {
			rules.FilterSplits = r.FilterSplits
		}
	}
	if rules.MaxBytes > 0 {
		rules.Full = param.Full(r.WhenFull)
	}
	if !rules.Active() {
		return param.Retention{}
	}
	return rules
}

// slotOf is the slot of a sparse feature.
func (c *Config) slotOf(name string) (slot int, ok bool) {
	for _, f := range c.Parse.Features {
		if f.Name == name && f.Kind == "sparse" && f.Slot != nil {
			return *f.Slot, true
		}
	}
	return 0, false
}

// retention checks what rows live by.
func (v *validator) retention(c *Config) {
	r := &c.Retention
	var sparse []string
	for _, f := range c.Parse.Features {
		if f.Kind == "sparse" {
			sparse = append(sparse, f.Name)
		}
	}
	own := map[int]param.SlotRetention{}
	for i, f := range r.Features {
		path := fmt.Sprintf("retention.features[%d].name", i)
		slot, ok := c.slotOf(f.Name)
		if !ok {
			v.near(path, f.Name, sparse, "%q is no sparse feature", f.Name)
			continue
		}
		one := Config{Parse: c.Parse, Retention: *r}
		one.Retention.Features = r.Features[i : i+1]
		rules := one.RetentionRules()
		s := rules.Of(slot)
		if was, ok := own[slot]; ok && was != s {
			v.fault(path, "is a feature of slot %d, which another has other numbers for: ids of one slot share their rows", slot)
		}
		own[slot] = s
	}
	rules := c.RetentionRules()
	if rules.Active() && c.Train.Prefetch.Ahead() {
		path := "train.prefetch.lookup"
		if c.Train.Prefetch.Lookup == 0 {
			path = "train.prefetch.push"
		}
		v.fault(path, "looks rows up before the batches in front are applied, and cannot know which ids get or lose a row by them (retention); set it to 0")
	}
	if rules.Expires() && c.Source.Value() != nil && c.Source.FileList() != nil {
		v.fault("retention", "lets rows expire by event time, and the records of a %s source have none; leave expire out", c.Source.Name())
	}
	if v.c.places.Set("retention.admission") && !rules.Waits() {
		v.fault("retention.admission", "says how ids wait for a row, but none does; set retention.occurrences")
	}
	admission := param.Admission(r.Admission)
	if v.c.places.Set("retention.filter_capacity") && (!admission.Filters() || !rules.Waits()) {
		v.fault("retention.filter_capacity", "is the size of a hash filter, and no id is counted by one; set retention.admission to hash_filter or sliding_hash_filter, and retention.occurrences")
	}
	if v.c.places.Set("retention.filter_splits") && (admission != param.AdmitSliding || !rules.Waits()) {
		v.fault("retention.filter_splits", "is of a sliding hash filter, and no id is counted by one; set retention.admission to sliding_hash_filter, and retention.occurrences")
	}
	if admission.Filters() && r.Occurrences > param.MaxFilterCount {
		v.fault("retention.occurrences", "is %d, and a %s counts to %d; ask for less, or set retention.admission to exact", r.Occurrences, admission, param.MaxFilterCount)
	}
	for i, f := range r.Features {
		if admission.Filters() && f.Occurrences != nil && *f.Occurrences > param.MaxFilterCount {
			v.fault(fmt.Sprintf("retention.features[%d].occurrences", i), "is %d, and a %s counts to %d; ask for less, or set retention.admission to exact", *f.Occurrences, admission, param.MaxFilterCount)
		}
	}
	if v.c.places.Set("retention.when_full") && r.TableMemory == 0 {
		v.fault("retention.when_full", "says what happens at a limit, but there is none; set retention.table_memory")
	}
	if v.c.places.Set("retention.max_jump") && !rules.Expires() {
		v.fault("retention.max_jump", "guards the time that rows expire by, but none does; set retention.expire")
	}
	switch _, longest := rules.ExpireRange(); {
	case r.MaxStep == 0:
	case !rules.Expires():
		v.fault("retention.max_step", "bounds the steps of the time that rows expire by, but none does; set retention.expire")
	case rules.MaxStep < 1:
		v.fault("retention.max_step", "is %s, and event times are in microseconds; set 1us or more", time.Duration(r.MaxStep))
	case rules.MaxStep >= longest:
		v.fault("retention.max_step", "is %s, and rows expire after %s, so one step may still remove them all; set a hundredth of retention.expire or less",
			time.Duration(r.MaxStep), time.Duration(longest)*time.Microsecond)
	}
}

// retentionWarnings lists what is odd about it.
func (c *Config) retentionWarnings() (out []string) {
	rules := c.RetentionRules()
	if rules.Admission == param.AdmitExact && !rules.Expires() {
		out = append(out, "retention.admission is exact and nothing expires: ids that occur less than retention.occurrences times are remembered for ever; set retention.expire, or take sliding_hash_filter")
	}
	shortest, longest := rules.ExpireRange()
	switch {
	case longest == 0:
	case rules.MaxStep == 0 && (rules.MaxJump == 0 || rules.MaxJump >= shortest):
		out = append(out, fmt.Sprintf("retention.max_jump is %s and rows expire after %s: one record that far in the future lets them all expire; set retention.max_step, or max_jump below expire",
			time.Duration(c.Retention.MaxJump), time.Duration(shortest)*time.Microsecond))
	case rules.MaxStep >= shortest:
		out = append(out, fmt.Sprintf("retention.max_step is %s and rows of a feature expire after %s: one batch may let them all expire; set max_step below that",
			time.Duration(c.Retention.MaxStep), time.Duration(shortest)*time.Microsecond))
	}
	return out
}
