package main

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// law is how the examples of a generated set come about. It draws the feature values of one example, at a time
// from 0 to 1 of the whole set, and returns their logit without an intercept.
type law struct {
	columns []column
	draw    func(rng *rand.Rand, time float64) (cells []string, logit float64)
}

// generate draws a set's examples, training first. The intercept is chosen so that a share of the labels is 1.
func generate(rng *rand.Rand, l law, train, valid int, positives float64) *data {
	d := &data{columns: l.columns, truth: true}
	rows := make([]row, train+valid)
	logits := make([]float64, len(rows))
	for i := range rows {
		rows[i].cells, logits[i] = l.draw(rng, float64(i)/float64(len(rows)))
	}
	bias := intercept(logits, positives)
	for i := range rows {
		rows[i].p = sigmoid(bias + logits[i])
		rows[i].positive = rng.Float64() < rows[i].p
	}
	d.train, d.valid = rows[:train], rows[train:]
	return d
}

// intercept is what to add to logits so that the mean of their probabilities is a share.
func intercept(logits []float64, share float64) float64 {
	low, high := -50., 50.
	for range 60 {
		mid, sum := (low+high)/2, 0.
		for _, x := range logits {
			sum += sigmoid(mid + x)
		}
		if sum < share*float64(len(logits)) {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// ids draws ids of a column: id k, from 0, is drawn in proportion to 1/(k+1)^skew.
type ids struct{ upTo []float64 }

func newIDs(n int, skew float64) ids {
	upTo, sum := make([]float64, n), 0.
	for k := range upTo {
		sum += math.Pow(float64(k+1), -skew)
		upTo[k] = sum
	}
	return ids{upTo}
}

func (d ids) draw(rng *rand.Rand) int {
	x := rng.Float64() * d.upTo[len(d.upTo)-1]
	low, high := 0, len(d.upTo)-1
	for low < high {
		if mid := (low + high) / 2; d.upTo[mid] < x {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// normals are n numbers of mean 0 and a standard deviation.
func normals(rng *rand.Rand, n int, deviation float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = deviation * rng.NormFloat64()
	}
	return out
}

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// twoIDs is a law of users and items: a weight of each, and the product of latent vectors, whose numbers have a
// deviation.
func twoIDs(rng *rand.Rand, users, items, rank int, deviation float64) law {
	vectors := func(n int) (weights []float64, latent [][]float64) {
		weights = normals(rng, n, .5)
		for range n {
			latent = append(latent, normals(rng, rank, deviation))
		}
		return weights, latent
	}
	user, userVectors := vectors(users)
	item, itemVectors := vectors(items)
	drawUser, drawItem := newIDs(users, .5), newIDs(items, .8)
	return law{
		columns: []column{{"user", idColumn}, {"item", idColumn}},
		draw: func(rng *rand.Rand, _ float64) ([]string, float64) {
			u, i := drawUser.draw(rng), drawItem.draw(rng)
			return []string{name("u", u), name("i", i)}, user[u] + item[i] + dot(userVectors[u], itemVectors[i])
		},
	}
}

func name(prefix string, id int) string { return prefix + strconv.Itoa(id) }

// manyIDs is a law of columns of ids, of 3 to 2,000 different ones each. The sum of an example's weights has a
// deviation of linear. The columns of the first third, of few ids, have vectors too: the sum of the products of all
// pairs of them has a deviation of products.
func manyIDs(rng *rand.Rand, columns int, linear, products float64) law {
	const rank = 4
	l := law{}
	draws := make([]ids, columns)
	weights := make([][]float64, columns)
	vectors := make([][][]float64, columns)
	each := linear / math.Sqrt(float64(columns))
	meeting := (columns + 2) / 3
	// Of n columns there are n(n-1)/2 products, each of rank terms whose deviation is that of a factor squared.
	factor := math.Sqrt(products / math.Sqrt(float64(max(rank*meeting*(meeting-1)/2, 1))))
	for c := range columns {
		n := int(math.Round(3 * math.Pow(2000./3, float64(c)/float64(max(columns-1, 1)))))
		l.columns = append(l.columns, column{"c" + strconv.Itoa(c+1), idColumn})
		draws[c], weights[c] = newIDs(n, 1), normals(rng, n, each)
		for range n {
			if c >= meeting {
				factor = 0
			}
			vectors[c] = append(vectors[c], normals(rng, rank, factor))
		}
	}
	l.draw = func(rng *rand.Rand, _ float64) ([]string, float64) {
		cells, logit := make([]string, columns), 0.
		var sum, squares [rank]float64
		for c := range columns {
			k := draws[c].draw(rng)
			cells[c] = name("v", k)
			logit += weights[c][k]
			for r, x := range vectors[c][k] {
				sum[r] += x
				squares[r] += x * x
			}
		}
		for r := range rank { // the sum over pairs, as of a factorization machine
			logit += (sum[r]*sum[r] - squares[r]) / 2
		}
		return cells, logit
	}
	return l
}

// numbers is a law of numbers that nobody scaled: four of sizes 2 to 5, two with a long tail, and three columns of
// ids. The truth has a product and a square besides the weights.
func numbers(rng *rand.Rand) law {
	l := manyIDs(rng, 3, .6, 0)
	idsOf := l.draw
	for i := range 6 {
		l.columns = append(l.columns, column{"x" + strconv.Itoa(i+1), numberColumn})
	}
	weights := []float64{.5, -.5, .4, .3, .6, -.4}
	l.draw = func(rng *rand.Rand, time float64) ([]string, float64) {
		cells, logit := idsOf(rng, time)
		z := normals(rng, 6, 1)
		for i, x := range z {
			if i < 4 { // means 2, 3, 4 and 5
				cells = append(cells, strconv.FormatFloat(float64(i+2)+.5*x, 'f', 4, 64))
			} else { // medians of 20, with a long tail
				cells = append(cells, strconv.FormatFloat(math.Round(100*math.Exp(3+1.5*x))/100, 'f', 2, 64))
			}
		}
		return cells, logit + dot(weights, z) + .5*z[0]*z[1] + .3*(z[2]*z[2]-1)
	}
	return l
}

// histories is a law of users who come with the items that they had last, the oldest first. An item is the likelier
// the more of the three newest items are of its group, which no sum over the whole list says.
func histories(rng *rand.Rand) law {
	const items, groups, length = 500, 20, 12
	draw, weights := newIDs(items, .7), normals(rng, items, .4)
	of := func(group int, rng *rand.Rand) int { // an item of a group
		for {
			if k := draw.draw(rng); k%groups == group {
				return k
			}
		}
	}
	return law{
		columns: []column{{"user", idColumn}, {"item", idColumn}, {"history", listColumn}},
		draw: func(rng *rand.Rand, _ float64) ([]string, float64) {
			list, group := make([]string, 4+rng.IntN(length-3)), rng.IntN(groups)
			var newest []int // groups, the newest last
			for i := range list {
				if rng.Float64() < .3 { // tastes change
					group = rng.IntN(groups)
				}
				list[i] = name("i", of(group, rng))
				newest = append(newest, group)
			}
			item := draw.draw(rng)
			if rng.Float64() < .5 { // what is shown has to do with what was there
				item = of(newest[rng.IntN(len(newest))], rng)
			}
			logit := weights[item]
			for i, w := range []float64{2, 1.2, .8} {
				if newest[len(newest)-1-i] == item%groups {
					logit += w
				}
			}
			return []string{name("u", rng.IntN(2000)), name("i", item), strings.Join(list, "|")}, logit
		},
	}
}

// drift is a law of ids whose weights turn into others from the set's begin to its end.
func drift(rng *rand.Rand) law {
	before, after := manyIDs(rng, 8, 1.2, 0), law{}
	seed := rng.Uint64()
	weight := func(column int, cell string, which uint64) float64 {
		h := uint64(14695981039346656037)
		for _, b := range []byte(cell) {
			h = (h ^ uint64(b)) * 1099511628211
		}
		return .45 * rand.New(rand.NewPCG(seed+which, h+uint64(column))).NormFloat64()
	}
	after.columns = before.columns
	after.draw = func(rng *rand.Rand, time float64) ([]string, float64) {
		cells, _ := before.draw(rng, time)
		logit := 0.
		for c, cell := range cells {
			logit += math.Cos(math.Pi/2*time)*weight(c, cell, 0) + math.Sin(math.Pi/2*time)*weight(c, cell, 1)
		}
		return cells, logit
	}
	return after
}
