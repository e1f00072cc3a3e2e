package peek

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/hint"
)

// Proposal is a parse section for records that were looked at.
type Proposal struct {
	// Label is the column of the label, empty when none looks like one.
	Label string
	// Positive turns the label into 0 and 1; empty: it is that already.
	Positive string
	// Time is the column that says when a record happened, and Latest the value of it that about a tenth of the records are not below; empty: there is none.
	Time, Latest string
	// Sparse and Dense count the features.
	Sparse, Dense int
	// Weight is the column of the examples' weights; empty: there is none.
	Weight string
	// YAML is the section, with comments. It ends with a line end.
	YAML string
}

// ProposeOptions say what is known about the records beside their columns.
type ProposeOptions struct {
	// Format is that of the records; "columns" for Parquet.
	Format string
	// Header reports whether the first line of the files names the columns; Names are all names in their order, for csv and tsv
	// without a header.
	Header bool
	Names  []string
	// Label names the label's column; empty: it is guessed.
	Label string
	// All reports that the records are all that there are.
	All bool
}

// Propose writes a parse section for columns. What it guesses it says in comments: it has seen a few records, and what a number means nobody
// can be distinguished from numbers.
func Propose(c *Columns, o ProposeOptions) Proposal {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p := Proposal{}
	line("parse:")
	line("  format: %s", o.Format)
	if o.Format == LibFM {
		line("  # each row is a label and index:value entries; to distinguish fields, name them in the order of the entries:")
		line("  # fields: [user, item]")
		p.Label, p.Sparse, p.YAML = "label", 1, b.String()
		if label := c.column("label"); label != nil {
			if p.Positive = positive(label, true); p.Positive != "" {
				p.YAML += fmt.Sprintf("  label: {positive: %q}   # labels go from %s to %s: choose what counts as positive\n", p.Positive, number(label.Min), number(label.Max))
			}
		}
		return p
	}
	if o.Format == CSV || o.Format == TSV {
		if o.Header {
			line("  header: true")
		} else {
			names := make([]string, len(o.Names))
			for i, n := range o.Names {
				names[i] = quote(n)
			}
			line("  columns: [%s]   # no line of the file names them: do it here", strings.Join(names, ", "))
		}
	}
	label := c.label(o.Label)
	line("  features:")
	slot := 0
	var others []*Column // more labels
	choices := c.choose(label, o)
	weight := c.weight(label, o)
	for _, col := range c.List {
		if label != nil && col == label {
			continue
		}
		if why := col.isLabelToo(label, c.Records); why != "" {
			line("    # - %s: left out, LEAK? %s", quote(col.Name), why)
			if !col.isTime() && !timeName.MatchString(strings.TrimSpace(col.Name)) {
				others = append(others, col)
			}
			continue
		}
		if col == weight {
			continue
		}
		f := choices[col](slot + 1)
		if f.text == "" {
			line("    # - %s: left out, %s", quote(col.Name), f.why)
			if f.back != "" { // it keeps its slot
				line("    # - %s", f.back)
				if !f.dense {
					slot++
				}
			}
			continue
		}
		if f.dense {
			p.Dense++
		} else {
			slot++
			p.Sparse++
		}
		if f.why != "" {
			f.text += "   # " + f.why
		}
		line("    - %s", f.text)
	}
	switch label {
	case nil:
		line("  # label: which column says what is to be predicted? None is named like one or has two values.")
	default:
		p.Label, p.Positive = label.Name, positive(label, false)
		switch {
		case label.Distinct == 1 && label.Rows > 1:
			line("  # Where the label is the same in every example, as in those looked at, there is nothing to learn:")
			fallthrough
		case p.Positive == "":
			line("  label: %s", labelText(label, p.Positive))
		default:
			line("  label: %s   # %s: choose what counts as positive", labelText(label, p.Positive), label.values())
		}
	}
	if weight != nil {
		p.Weight = weight.Name
		line("  weight: {name: %s}   # positive, %s to %s, mean %s: how much an example counts; take this line out if it is a quantity, and make it a feature",
			quote(weight.Name), number(weight.Min), number(weight.Max), number(weight.Mean))
	}
	if len(others) > 0 {
		line("# To learn more than one thing, put heads in the place of the label, and a model that has any number of them:")
		line("# heads:")
		line("#   - {name: %s%s}", headName(label.Name), labelOf(label, p.Positive))
		for _, col := range others {
			line("#   - {%s}", col.head(label, p.Positive))
		}
		line("# model: {shared_bottom: {dim: 16, hidden: [128, 64]}}")
	}
	p.Time, p.Latest = c.latest(label)
	p.YAML = b.String()
	return p
}

// choose makes features of all columns but the label's. Of those that cost records, the dearest are left out until
// those that remain cost less than a third of the records together. What teaches nothing, or too much, is a feature only
// where there is no other.
func (c *Columns) choose(label *Column, o ProposeOptions) map[*Column]func(slot int) proposed {
	out := map[*Column]func(slot int) proposed{}
	names := map[string]int{}
	for _, n := range o.Names {
		names[n]++
	}
	leaks := c.leaks(label)
	var costly []*Column
	cost, some, always := int64(0), false, false
	put := func(last bool) {
		for _, col := range c.List {
			make := func(slot int) proposed {
				f := col.feature(seen{o, slot, c, last})
				if k := leaks[col]; k != nil && f.text != "" {
					why := k.text(label, c.kept)
					if last {
						f.why = why + ": all that is left"
					} else {
						f = proposed{why: why + ". If it is known before the label, bring it back:", back: f.text, dense: f.dense, always: true}
					}
				}
				return f
			}
			if names[col.Name] > 1 {
				make = func(int) proposed { return proposed{why: "the header names it more than once"} }
			}
			out[col] = make
			if col == label || col.isLabelToo(label, c.Records) != "" {
				continue
			}
			f := make(1)
			some, always = some || f.text != "", always || f.always
			if f.text != "" && f.bad > 0 {
				costly, cost = append(costly, col), cost+f.bad
			}
		}
	}
	if put(false); !some && always {
		put(true)
	}
	bad := func(col *Column) int64 { return out[col](1).bad }
	slices.SortStableFunc(costly, func(a, b *Column) int { return cmp.Compare(bad(b), bad(a)) })
	for _, col := range costly {
		if 3*cost <= c.Records {
			break
		}
		n := bad(col)
		cost -= n
		out[col] = func(int) proposed {
			return proposed{why: fmt.Sprintf("%d of %d records would be bad rows, and other features cost some too", n, c.Records)}
		}
	}
	return out
}

// weightName matches what the weights of examples are called for sure, and weight, which may be an item's.
var weightName = regexp.MustCompile(`(?i)^((sample|example|instance|row|importance|case|loss)_?weights?|weights?)$`)

// mostWeight is the most that a weight may be of the mean: a few examples with more would decide every step.
const mostWeight = 100

// weight is the column of the examples' weights: positive numbers in all records, and where it is called weight only, of
// about 1 in the mean. nil: there is none.
func (c *Columns) weight(label *Column, o ProposeOptions) *Column {
	for _, col := range c.List {
		if col != label && weightName.MatchString(strings.TrimSpace(col.Name)) && col.isWeight(c.Records, o) == "" {
			return col
		}
	}
	return nil
}

// isWeight says why a column is none of weights, or "".
func (c *Column) isWeight(records int64, o ProposeOptions) string {
	few := false
	for _, n := range []string{"weight", "weights"} {
		few = few || strings.EqualFold(strings.TrimSpace(c.Name), n)
	}
	twice := 0
	for _, n := range o.Names {
		if n == c.Name {
			twice++
		}
	}
	whole := c.Integers+c.Wholes == c.Numbers
	switch {
	case c.Rows < records || c.Numbers != c.Values || c.rows.odd+c.rows.mixed+c.rows.infinite > 0 || c.MaxValues != 1 || twice > 1 || !utf8.ValidString(c.Name) ||
		strings.HasPrefix(c.Type, "list<") || len(c.types) > 1 || strings.HasPrefix(c.Name, "__"):
		return "not a number in every record"
	case c.Min < 0:
		return fmt.Sprintf("it goes below 0, to %s", number(c.Min))
	case c.Min == c.Max:
		return "it is always the same"
	case whole && c.Distinct > 100 && c.Max > 1000, whole && !c.again && records >= manyRecords:
		return fmt.Sprintf("whole numbers up to %s look like ids", number(c.Max))
	case c.Max > mostWeight*c.Mean:
		return fmt.Sprintf("it goes to %s, and its mean is %s", number(c.Max), number(c.Mean))
	case few && (c.Mean < .5 || c.Mean > 2):
		return fmt.Sprintf("its mean is %s, and weights of examples average to about 1", number(c.Mean))
	case records < manyRecords:
		return fmt.Sprintf("%d records are too few to say", records)
	}
	return ""
}

// isLabelToo says why a column looks like a label beside the one that is predicted, or "": it is a number and named like one, such as
// the rating that a label of 0 and 1 was made of, or it holds something only where the other is not 0, as a purchase or a time watched does after a click. What is known only afterwards
// must not be a feature.
func (c *Column) isLabelToo(label *Column, records int64) string {
	if label == nil || c.Rows == 0 || c.MaxValues > 1 || c.Numbers != c.Values {
		return ""
	}
	// By chance so many records of so few would not all be the label's.
	const few = 10
	n, alone := c.numHolding(label)
	positive, _ := label.numHolding(&Column{})
	if n >= few && alone == 0 && records-int64(positive) >= few && float64(n)*math.Log(float64(positive)/float64(records)) < -few {
		return fmt.Sprintf("it holds something only where %s does: what is known afterwards is no input, but a label too", label.Name)
	}
	if c.namedLikeLabel() {
		return fmt.Sprintf("it is named like a label, as %s is, which may have been made of it", label.Name)
	}
	return ""
}

// namedLikeLabel reports whether the column has a name that labels have.
func (c *Column) namedLikeLabel() bool {
	return slices.ContainsFunc(labelNames, func(name string) bool { return strings.EqualFold(c.Name, name) })
}

// head writes the column as a head beside that of the label.
func (c *Column) head(label *Column, positive string) string {
	text := "name: " + headName(c.Name) + labelOf(c, "")
	switch {
	case c.Distinct <= 2 && c.Min >= 0 && c.Max <= 1: // a click of another kind
	case c.Min >= 0 && !c.namedLikeLabel(): // a time or a count; ratings and scores are on a scale
		text += ", loss: poisson"
	default:
		text += ", loss: squared"
	}
	if n, alone := c.numHolding(label); n > 0 && alone == 0 {
		mask := "mask: " + quote(label.Name)
		if positive != "" {
			mask = fmt.Sprintf("mask: {column: %s, positive: %q}", quote(label.Name), positive)
		}
		text += ", " + mask
	}
	return text
}

// labelText writes the label of a job without heads.
func labelText(c *Column, positive string) string {
	if positive == "" {
		return quote(c.Name)
	}
	return fmt.Sprintf("{name: %s, positive: %q}", quote(c.Name), positive)
}

// labelOf writes the key label of a head, where it needs one.
func labelOf(c *Column, positive string) string {
	name := headName(c.Name)
	switch {
	case positive != "":
		return fmt.Sprintf(", label: {name: %s, positive: %q}", quote(c.Name), positive)
	case name != c.Name:
		return ", label: " + quote(c.Name)
	}
	return ""
}

var notInHead = regexp.MustCompile(`[^A-Za-z0-9_]+`)

// headName makes a head's name of a column's.
func headName(column string) string {
	name := strings.Trim(notInHead.ReplaceAllString(column, "_"), "_")
	return quote(cmp.Or(name[:min(len(name), 64)], "head"))
}

// labelNames are what labels are usually called, the surest first.
var labelNames = []string{"label", "click", "clicked", "is_click", "target", "y", "conversion", "converted", "like", "liked", "rating", "stars", "score"}

// column finds a column by name.
func (c *Columns) column(name string) *Column { return c.byName[name] }

// label guesses the label's column: by its name, or else the only one that is 0 and 1 (or true and false) throughout.
func (c *Columns) label(named string) *Column {
	if named != "" {
		return c.byName[named]
	}
	// Records whose label is no number, as in torn lines, are bad rows.
	fits := func(col *Column) bool { return col.Rows > 0 && 10*col.widths[1] >= 9*col.Rows && col.isLabel() }
	for _, name := range labelNames {
		for _, col := range c.List {
			if strings.EqualFold(col.Name, name) && (fits(col) || col.Distinct == 2 && col.Texts == col.Rows && col.MaxValues == 1) {
				return col
			}
		}
	}
	var found *Column
	for _, col := range c.List {
		if fits(col) && col.Rows == c.Records && col.Numbers+col.truths == col.Values && col.Distinct == 2 && (col.Min == 0 && col.Max == 1 || col.truths > 0) {
			if found != nil {
				return nil
			}
			found = col
		}
	}
	return found
}

// isLabel reports whether most values are numbers, or true and false.
func (c *Column) isLabel() bool {
	return c.mostly(c.Numbers) || c.mostly(c.truths)
}

// mostly reports whether so many values are four in five of all.
func (c *Column) mostly(n int64) bool { return n > 0 && 5*n >= 4*c.Values }

// positive is the condition that makes 0 and 1 of a label, or "" when it is that; in libfm -1 is 0 too.
func positive(c *Column, libfm bool) string {
	if c.mostly(c.truths) {
		return ""
	}
	if !c.mostly(c.Numbers) {
		return c.positiveText()
	}
	if c.Min >= 0 && c.Max <= 1 && (c.fractions == 0 || c.Distinct <= 2) || libfm && c.Min == -1 && c.Max == 1 && c.Distinct == 2 {
		return ""
	}
	// A count or an amount of which many are 0: whether there is one.
	if some, _ := c.numHolding(&Column{}); !libfm && c.Min == 0 && 10*int64(some) <= 9*c.Rows {
		return "> 0"
	}
	// Four of five stars: the upper two fifths.
	at := c.Min + 0.7*(c.Max-c.Min)
	if c.Integers == c.Numbers {
		at = float64(int64(at + 0.999))
	}
	return ">= " + number(at)
}

// yesWords are texts that a label has where it is 1.
var yesWords = []string{"yes", "y", "t", "on", "click", "clicked", "pos", "positive", "like", "liked", "good", "+"}

// positiveText is the condition on a label of text: the value that says yes, and where none does the last one of two, or the first.
func (c *Column) positiveText() string {
	var values []string
	for _, x := range c.Examples {
		if s := strings.TrimSpace(Show(x)); s != "" {
			values = append(values, s)
		}
	}
	if len(values) == 0 {
		return ""
	}
	slices.Sort(values)
	at := 0
	if c.Distinct == 2 {
		at = len(values) - 1
	}
	if i := slices.IndexFunc(values, func(s string) bool { return slices.Contains(yesWords, strings.ToLower(s)) }); i >= 0 {
		at = i
	}
	if isNumber(values[at]) { // which would be compared as one
		if i := slices.IndexFunc(values, func(s string) bool { return !isNumber(s) }); i >= 0 {
			return "!= " + values[i]
		}
	}
	return "== " + values[at]
}

// values says what there is, for who chooses of it.
func (c *Column) values() string {
	switch {
	case c.mostly(c.Numbers):
		return number(c.Min) + " to " + number(c.Max)
	case c.Distinct == 2 && len(c.Examples) == 2:
		return fmt.Sprintf("%q or %q", Show(c.Examples[0]), Show(c.Examples[1]))
	case c.Distinct >= maxDistinct:
		return fmt.Sprintf("%d texts or more", maxDistinct)
	}
	return fmt.Sprintf("%d texts", c.Distinct)
}

var (
	timeName  = regexp.MustCompile(`(?i)^(ts|time|timestamp|time_stamp|date|datetime|day|created|updated|modified|unix.*|.*_(ts|time|timestamp|date|at))$`)
	idName    = regexp.MustCompile(`(?i)(^|_)(id|ids|uid|user|item|movie|product|video|ad|author|brand|category|cat|genre|genres|tag|tags|city|country|device|zip|hour|weekday|gender|occupation|type|lang|language|os|site|app|page|shop|store)(_?id)?s?$|id$`)
	denseName = regexp.MustCompile(`(?i)(^|_)(price|age|count|cnt|num|rate|ratio|score|amount|duration|length|len|size|weight|width|height|distance|dist|ctr|cvr|days|seconds|minutes|avg|mean|sum|total|year)s?($|_)`)
)

// LooksLikeID reports whether a column has the name of an id.
func LooksLikeID(column string) bool {
	column = strings.TrimSpace(column)
	return idName.MatchString(column) && !denseName.MatchString(column)
}

// recordName matches what the number of a record, a request or the like is called, which comes once.
var recordName = regexp.MustCompile(`(?i)^(row|record|request|req|event|impression|imp|transaction|txn|log|line|index|rowid|uuid|guid|id)(_?(id|no|nr|num|number|key|uuid))?$`)

// manyRecords is how many records say by chance no longer that a value does not come again.
const manyRecords = 50

// once says why a column of which no value comes again is no feature, or what to ask of it. What is left out is to be
// sure: ids of many users differ in a few records too, so that of their names all records must have been seen.
func (c *Column) once(records int64, all bool) (leaveOut bool, why string) {
	called := strings.TrimSpace(c.Name)
	switch {
	case records < manyRecords || c.Rows < records || c.Values != c.Rows || c.again:
		return false, ""
	case c.separator() != "": // a list: its ids come again where no list does
		return false, ""
	case c.Integers == c.Values && c.Max-c.Min+1 == float64(c.Rows):
		return true, "it numbers the records"
	case recordName.MatchString(called):
		return true, "it is another in every record, of which nothing can be learnt for others"
	case c.comesAgain(): // [Column.again] knows the first values only
		return false, ""
	case all:
		return true, fmt.Sprintf("it is another in each of all %d records: an id that comes once teaches nothing", records)
	case records >= 1000 && !idName.MatchString(called):
		return true, fmt.Sprintf("it is another in each of %d records: an id that comes once teaches nothing", records)
	}
	return false, "another in every record that was looked at: leave it out if it numbers them"
}

// isTime reports whether numbers look like times of this century, in milli-, micro- or nanoseconds since 1970. Ids made of the time are as large as those in nanoseconds, which are
// thousands all the same: clocks that are stored are no finer.
func (c *Column) isTime() bool {
	const from, to = 1e12, 2.2e12 // September 2001 to 2039, in milliseconds
	if c.Integers != c.Values || c.Min == c.Max {
		return false
	}
	within := func(unit float64) bool { return c.Min >= from*unit && c.Max <= to*unit }
	return within(1) || within(1e3) || within(1e6) && c.thousands == c.Values
}

// short writes a number with three digits.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

// maxQuantity is the most that a number of a dense feature may be before it is scaled.
const maxQuantity = 1e15

// proposed is a column as a feature.
type proposed struct {
	// text is in YAML's flow style; empty: the column is left out.
	text string
	// why is a comment: what is guessed, or why the column is left out.
	why   string
	dense bool
	// always reports that the column is left out because of what it teaches: all records have the same value, or each
	// another, or it tells the label. It is better than nothing.
	always bool
	// back, of a column that is left out, is the text that brings it back.
	back string
	// bad is how many of the records are bad rows with this feature.
	bad int64
}

// tooMany reports whether a column costs more records than it is worth.
func tooMany(bad, records int64) bool {
	if records < manyRecords {
		return 3*bad > records
	}
	return 10*bad > records
}

// seen is what a column is looked at with.
type seen struct {
	ProposeOptions
	slot    int
	columns *Columns
	// last takes columns too that teach little: there are no others.
	last bool
}

// feature makes a feature of a column, or says why there is none.
func (c *Column) feature(o seen) proposed {
	format, slot, records := o.Format, o.slot, o.columns.Records
	name := quote(c.Name)
	if len(c.Name) >= 4 && strings.HasPrefix(c.Name, "__") && strings.HasSuffix(c.Name, "__") {
		name = quote(cmp.Or(strings.Trim(c.Name, "_"), "column")) + ", column: " + quote(c.Name)
	}
	few := ""
	if c.Rows < records {
		few = fmt.Sprintf("in %s of the records", Share(c.Rows, records))
	}
	and := func(parts ...string) string {
		return strings.Join(slices.DeleteFunc(append([]string{few}, parts...), func(s string) bool { return s == "" }), "; ")
	}
	leaveOut := func(format string, args ...any) proposed { return proposed{why: fmt.Sprintf(format, args...)} }
	called := strings.TrimSpace(c.Name)
	dropped, once := c.once(records, o.All)
	sp := c.spread()
	inLines := format == CSV || format == TSV
	switch {
	case !utf8.ValidString(c.Name):
		return leaveOut("its name is not UTF-8: convert the file, with iconv -f latin1 -t utf-8 for example")
	case c.Rows == 0:
		return leaveOut("no record has a value")
	case c.objects > 0 && tooMany(c.rows.mixed, records):
		return leaveOut("it holds %s values, which a feature cannot be made of", c.Kind())
	case tooMany(c.rows.mixed, records):
		return leaveOut("%d of %d records hold numbers and text in one list, or numbers that do not fit 64 bits", c.rows.mixed, records)
	case c.wrapsJSON():
		return leaveOut("its text is JSON: write the columns that it holds into the record itself")
	case c.Distinct == 1 && c.Rows == records && records > 1 && !o.last:
		return proposed{why: "it is always " + clip(Show(c.Examples[0])), always: true}
	case c.Type == "date", c.Type == "time", c.Type == "timestamp":
		return leaveOut("it is a %s, which is stored as a number", c.Type)
	case timeName.MatchString(called) && !c.isDay(), c.times == c.Values:
		return leaveOut("it looks like a time")
	case !idName.MatchString(called) && c.isTime():
		return leaveOut("it looks like a time, counted since 1970")
	case dropped && (recordName.MatchString(called) || c.Integers == c.Values && c.Max-c.Min+1 == float64(c.Rows)):
		return leaveOut("%s", once)
	case c.commas == c.Values:
		return leaveOut(`its numbers have a comma for a point, which nothing reads: write a point (a list of ids would have split: ",")`)
	}
	sparse := func(bad int64, more string, why ...string) proposed {
		if dropped && !o.last {
			return proposed{why: once, always: true}
		}
		if c.MaxValues > 1 && !strings.Contains(more, "combiner") {
			more += ", combiner: mean"
		}
		return proposed{text: fmt.Sprintf("{name: %s, slot: %d%s}", name, slot, more), why: and(append(why, once)...), bad: bad}
	}
	asText := ", hash: hash" // takes texts, whatever whole numbers they are
	if inLines || format == columnar || c.rows.ints+c.rows.wholes == 0 {
		asText = ", type: string"
	}
	if c.rows.texts > 0 && (c.separator() != "" || !c.isQuantity(format, records)) {
		bad := c.badIDs(format)
		if tooMany(bad, records) {
			return leaveOut("%d of %d records hold numbers with a fraction, the others text, and no feature takes both", bad, records)
		}
		note := c.badNote(bad, records, "numbers with a fraction")
		if sep := c.separator(); sep != "" {
			more, fills := fmt.Sprintf(", split: %q, combiner: mean", sep), &c.pieces[sep[0]].padding
			if c.pieces[sep[0]].outside > 0 && !fills.isMinusOne() {
				more += asText
			}
			return sparse(bad, more+fills.ignore(), note, fills.note())
		}
		if c.Distinct >= maxDistinct && c.Texts == c.Rows && strings.Contains(Show(c.Examples[0]), " ") {
			return leaveOut("it looks like free text")
		}
		if c.rows.outside > 0 { // ids of both kinds
			return sparse(bad, asText+c.padding.ignore(), note, "some are numbers below 0 or above 2^48, which are no ids as they are")
		}
		mixed := ""
		if 2*c.Numbers > c.Values && c.Integers+c.Wholes < c.Numbers { // a quantity, but for some
			mixed = fmt.Sprintf("numbers, and text such as %s, all taken as ids: for kind: dense leave such values empty", clip(Show(c.word)))
		}
		if format == columnar { // a column's type is known before any value is
			return sparse(bad, ", type: string"+c.padding.ignore(), note, mixed, c.padding.note())
		}
		return sparse(bad, c.padding.ignore(), note, mixed, c.padding.note())
	}
	isID := LooksLikeID(c.Name) || c.areFloatIDs(records)
	isCount := !idName.MatchString(called) && c.isCount(&sp)
	whole := c.Integers+c.Wholes == c.Numbers && (c.Wholes == 0 || isID) && !isCount
	note := ""
	if whole && c.Wholes > 0 {
		note = "written as " + c.wholeExample() + ", which is the id without .0"
	}
	bad := c.badIDs(format)
	switch {
	case whole && !tooMany(bad, records) && c.Type == "uint64" && c.Min < 0:
		return sparse(bad, ", hash: hash", "of numbers without a sign, those from 2^63 on are read as negative ones: ids that stay apart")
	case whole && !tooMany(bad, records) && (c.Min >= -1 || isID) && !weightName.MatchString(called) && !denseName.MatchString(called) && (idName.MatchString(called) || c.Max > 1 || c.MaxValues > 1):
		pad, more := c.padding.note(), c.padding.ignore()
		if c.rows.beyond > 0 {
			return sparse(bad, more+", type: string", note, "numbers that do not fit 64 bits are no ids as they are", pad)
		}
		if c.Max > 1<<48-1 {
			return sparse(bad, more+", hash: hash", note, "numbers above 2^48 are no ids as they are", pad)
		}
		if c.Min < 0 && !c.padding.isMinusOne() {
			return sparse(bad, more+", hash: hash", note, fmt.Sprintf("whole numbers from %s: an id, or a quantity (then kind: dense, without hash)?", number(c.Min)), pad)
		}
		why := ""
		if !idName.MatchString(called) {
			why = "whole numbers: an id, or a quantity (then kind: dense)?"
		}
		return sparse(bad, more, note, why, pad)
	case max(-c.Min, c.Max) > maxQuantity && inLines:
		return sparse(0, ", type: string", "numbers above 10^15 are no quantities")
	case max(-c.Min, c.Max) > maxQuantity:
		return leaveOut("it has numbers up to %s, and a dense feature takes none above 10^15", number(max(-c.Min, c.Max)))
	}
	dim, bad := c.badNumbers(inLines)
	if strings.HasPrefix(c.Type, "list<") && dim == 1 {
		return leaveOut("it is a list with one number, and a dense feature of one number is no list")
	}
	if tooMany(bad, records) {
		if c.MinValues != c.MaxValues {
			return leaveOut("it holds %d to %d numbers, and a dense feature has a fixed width", c.MinValues, c.MaxValues)
		}
		return leaveOut("%d of %d records hold something else than numbers", bad, records)
	}
	more := ""
	if dim > 1 {
		more = fmt.Sprintf(", dim: %d", dim)
	}
	scale, scaled := c.scale(&sp)
	if more += scale; isCount && c.Integers+c.Wholes == c.Numbers {
		scaled += "; a quantity, or an id (then slot)?"
	}
	gaps := ""
	if 100*c.Rows < 99*records && o.columns.byName[c.Name+"_missing"] == nil && !strings.HasPrefix(c.Name, "__") {
		more += ", missing: indicator"
		gaps = Share(records-c.Rows, records) + " have none, which becomes an input of its own"
	}
	if weightName.MatchString(called) {
		gaps = "no weight of examples: " + c.isWeight(records, o.ProposeOptions)
	}
	other := "other values"
	if c.word != "" {
		other = "text such as " + clip(Show(c.word))
	}
	few = ""
	return proposed{
		text: fmt.Sprintf("{name: %s, kind: dense%s}", name, more), dense: true, bad: bad,
		why: and(c.badNote(bad, records, other), fmt.Sprintf("%s to %s, mean %s", number(c.Min), number(c.Max), number(c.Mean)), scaled, gaps),
	}
}

// scale is the keys that bring numbers to about 1, and why. Numbers of other sizes drown the features beside them, or are
// drowned.
func (c *Column) scale(s *spread) (keys, why string) {
	const small = .1 // the deviation below which numbers hardly differ
	most := max(-c.Min, c.Max)
	switch {
	case c.Min == c.Max: // only gaps distinguish records
		return "", ""
	case s.longTail():
		return ", log: true, standardise: running", fmt.Sprintf("half are below %s and a hundredth above %s, so their logarithm, standardised", short(s.median), short(s.high))
	case s.n < fewNumbers && most > 1000 && most > 20*math.Abs(c.Mean): // of few, or of vectors
		return ", log: true, standardise: running", "most are small, so their logarithm, standardised"
	case most > 1:
		return ", standardise: running", "beyond ±1, so standardised"
	case s.n >= fewNumbers && s.std < small:
		return ", standardise: running", fmt.Sprintf("they differ by %s only, so standardised", short(s.std))
	}
	return "", "within ±1 as they are"
}

// isDay reports whether the numbers of a column that is named like a time are those of days or months.
func (c *Column) isDay() bool {
	const days = 366
	return c.Rows > 0 && c.Integers == c.Values && c.Min >= 0 && c.Max <= days
}

// areFloatIDs reports whether whole numbers that are written as 667.0 look like ids: they have gaps, for which pandas
// writes whole numbers so, or they are few of a wide range.
func (c *Column) areFloatIDs(records int64) bool {
	if c.Wholes == 0 || c.Integers+c.Wholes != c.Numbers || c.MaxValues > 1 || c.Min < 0 || denseName.MatchString(strings.TrimSpace(c.Name)) || records < manyRecords {
		return false
	}
	wide := c.Max-c.Min > 10_000 && c.again && c.Distinct < maxDistinct && float64(c.Distinct) < (c.Max-c.Min)/20
	return wide || c.Rows < records && c.Distinct > 2
}

// columnar is the format of sources that have columns of a type each, such as Parquet.
const columnar = "columns"

// isQuantity reports whether a column with some texts holds numbers for a dense feature in nearly all records.
func (c *Column) isQuantity(format string, records int64) bool {
	switch format {
	case columnar: // a column has one type
		return false
	case CSV, TSV:
		if c.rows.odd == 0 {
			return c.Numbers == c.Values
		}
		return 50*c.rows.odd <= records && c.Integers+c.Wholes < c.Numbers // as ids they train every record
	}
	return c.rows.floats > c.rows.texts
}

// badIDs is how many records a sparse feature cannot read, apart from numbers that need hash or type.
func (c *Column) badIDs(format string) int64 {
	if format == CSV || format == TSV {
		return 0
	}
	return c.rows.mixed + c.rows.floats
}

// badNumbers is the width of a dense feature, and how many records it cannot read.
func (c *Column) badNumbers(inLines bool) (dim int, bad int64) {
	rows := int64(0)
	for width, n := range c.widths {
		if n > rows || n == rows && width < dim {
			dim, rows = width, n
		}
	}
	bad = c.rows.mixed + c.rows.infinite + c.Rows - rows
	if inLines {
		return dim, bad + c.rows.odd
	}
	return dim, bad + c.rows.texts
}

// badNote says what of the records are bad rows.
func (c *Column) badNote(bad, records int64, what string) string {
	if bad == 0 {
		return ""
	}
	if c.rows.mixed == bad {
		what = "values that no feature takes"
	}
	return fmt.Sprintf("%d of %d records are bad rows: %s", bad, records, what)
}

// wholeExample is a whole number with a fraction of 0, as it is written.
func (c *Column) wholeExample() string {
	for _, x := range c.Examples {
		switch x := x.(type) {
		case string:
			if strings.HasSuffix(strings.TrimSpace(x), ".0") {
				return strings.TrimSpace(x)
			}
		case float32, float64:
			return Show(x) + ".0"
		}
	}
	return "667.0"
}

// wrapsJSON reports whether the texts of the column are JSON objects.
func (c *Column) wrapsJSON() bool {
	return c.rows.texts == c.Rows && len(c.Examples) > 0 && !slices.ContainsFunc(c.Examples, func(x any) bool {
		s, ok := x.(string)
		return !ok || !hint.IsObject(s)
	})
}

// Share renders a share as a percentage that is 100 % or 0 % only when it is exactly that.
func Share(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	x := 100 * float64(part) / float64(whole)
	switch {
	case part == whole, part == 0, x >= 10 && x < 99.5, x == float64(int64(x)):
		return fmt.Sprintf("%.0f %%", x)
	case x >= 99.5:
		return fmt.Sprintf("%.3g %%", min(x, 99.9))
	}
	return fmt.Sprintf("%.2g %%", max(x, 0.01))
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:39]) + "…"
	}
	return s
}

var plainWord = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// quote writes a name as YAML.
func quote(s string) string {
	if plainWord.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}
