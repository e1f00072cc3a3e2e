package metric

import (
	"iter"
	"math"
)

// groupedArea is Σ wᵤ·AUCᵤ / Σ wᵤ over the groups with positives and negatives, wᵤ being the weight of the group's
// examples, its impressions (Zhou et al., 2018, Deep Interest Network, section 6.1.2, equation 10). Unlike AUC it does not
// count that one user clicks more than another, which no ranking for a user can use. NaN where no group has both, and
// without groups.
func groupedArea() Metric {
	return Metric{
		Name: "gauc", Doc: "the AUC within each group (a user, a request), averaged by the groups' weights", Direction: Higher, Probabilities: true, Grouped: true,
		Compute: (*Workspace).gauc,
		counts:  func(g *groupLabels) bool { return g.positive && g.negative },
	}
}

func (w *Workspace) gauc(s *Set) float64 {
	s.check()
	if s.Groups == nil || !w.rank(s.Predictions) {
		return math.NaN()
	}
	var sum, total float64
	for items := range w.groups(s) {
		if auc, weight := area(items, s.Labels, s.Weights); !math.IsNaN(auc) {
			sum += weight * auc
			total += weight
		}
	}
	return ratio(sum, total)
}

// groupLabels describes the labels of a group's examples, without those of weight 0.
type groupLabels struct {
	rows, weighted     int
	positive, negative bool
	low, high          float32
}

// Counted is what a metric of groups is computed of: the groups that count and their examples, of all there are.
type Counted struct{ Groups, OfGroups, Rows, OfRows int }

// Counted returns what a metric of groups is computed of. A group counts in gauc if it has positives and
// negatives, in xgauc if its labels differ, in rankings if it has a positive. ok is false for other
// metrics and without groups.
func (s *Set) Counted(m *Metric) (c Counted, ok bool) {
	if m.counts == nil || s.Groups == nil {
		return Counted{}, false
	}
	groups := s.groupLabels()
	for i := range groups {
		g := &groups[i]
		if g.rows == 0 {
			continue
		}
		c.OfGroups++
		c.OfRows += g.rows
		if m.counts(g) {
			c.Groups++
			c.Rows += g.rows
		}
	}
	return c, true
}

// Single reports whether there are groups, and each has one example.
func (s *Set) Single() bool {
	groups := s.groupLabels()
	for i := range groups {
		if groups[i].rows > 1 {
			return false
		}
	}
	return s.Groups != nil && s.Len() > 0
}

func (s *Set) groupLabels() []groupLabels {
	out := make([]groupLabels, s.NumGroups)
	for i, n := range s.Groups {
		g, y := &out[n], s.Labels[i]
		g.rows++
		if weightOf(s.Weights, i) == 0 {
			continue
		}
		if g.weighted++; g.weighted == 1 {
			g.low, g.high = y, y
		}
		g.low, g.high = min(g.low, y), max(g.high, y)
		g.positive, g.negative = g.positive || y > 0.5, g.negative || y <= 0.5
	}
	return out
}

// groups gives the ranked examples of each group, in ascending order of score, the groups in the order of their numbers.
func (w *Workspace) groups(s *Set) iter.Seq[[]uint64] {
	if cap(w.next) < s.NumGroups+1 {
		w.next = make([]int, s.NumGroups+1)
	}
	w.next = w.next[:s.NumGroups+1]
	clear(w.next)
	for _, g := range s.Groups {
		w.next[g+1]++
	}
	for g := range s.NumGroups {
		w.next[g+1] += w.next[g]
	}
	// A stable distribution of what is in the order of scores leaves each group in that order.
	w.spare = sized(w.spare, len(w.items))
	for _, item := range w.items {
		g := s.Groups[uint32(item)]
		w.spare[w.next[g]] = item
		w.next[g]++
	}
	return func(yield func([]uint64) bool) {
		from := 0
		for _, to := range w.next[:s.NumGroups] { // after the group's last
			if !yield(w.spare[from:to]) {
				return
			}
			from = to
		}
	}
}

// Grouper numbers the values of a key column, from 0 in the order of their first occurrence. The zero value is ready.
type Grouper struct{ numbers map[string]int32 }

// Number is that of a value. The caller keeps the bytes.
func (g *Grouper) Number(value []byte) int32 {
	if n, ok := g.numbers[string(value)]; ok {
		return n
	}
	if g.numbers == nil {
		g.numbers = map[string]int32{}
	}
	n := int32(len(g.numbers))
	g.numbers[string(value)] = n
	return n
}

// Len is how many different values there were.
func (g *Grouper) Len() int { return len(g.numbers) }

// Values lists them by their numbers.
func (g *Grouper) Values() []string {
	out := make([]string, len(g.numbers))
	for value, n := range g.numbers {
		out[n] = value
	}
	return out
}

// renumber numbers the values in the order of their first occurrence in numbers, which are changed to the new ones.
func (g *Grouper) renumber(numbers []int32) {
	values := g.Values()
	now := make([]int32, len(values))
	next := int32(0)
	for i, n := range numbers {
		if now[n] == 0 {
			next++
			now[n] = next
		}
		numbers[i] = now[n] - 1
	}
	for n, value := range values {
		g.numbers[value] = now[n] - 1
	}
}
