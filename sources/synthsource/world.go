package synthsource

import "math"

// The size of the parts of the log odds. Parts that are called a deviation have mean 0.
const (
	topicDim = 4 // dimensions of topics and interests

	baseLogit        = -1.1
	userDeviation    = 0.3
	countryDeviation = 0.2
	qualityDeviation = 0.85
	priceEffect      = 0.2 // per standard deviation of the price
	tasteLength      = 1.1
	historyLength    = 0.4
	moodLength       = 0.2

	// The minutes watched after a click are log-normal: their mean is meanMinutes where a click is as likely as not, and grows
	// with the odds to the power minutesPower.
	meanMinutes      = 3
	minutesPower     = 0.5
	minutesDeviation = 0.4 // of their logarithm, about what it is expected to be

	shiftAngle = math.Pi / 3 // by which a shift turns a taste: half of what was learned of it holds on
	shiftEvery = 8           // a shift hits one in so many audiences
)

// world is what a stream's options and seed fix once and for all. It never changes, so it may be shared.
type world struct {
	opts   Options
	users  popularity
	items  popularity
	topics [][topicDim]float64 // by category

	userSpread spread // audience, country, readiness to click
	slotSpread spread // coordinate 0: when in turn a place of the catalogue changes hands
	itemSeed   uint64 // of the spreads of category, quality and price, one for each generation of items
	favourite  uint64
	tasteAngle [2]float64 // where audience 0 begins, in the two planes of taste
	countries  float64    // turns the countries' deviations
}

func newWorld(opts Options) *world {
	w := &world{
		opts:       opts,
		users:      newPopularity(opts.Users, 10, 0.9),
		items:      newPopularity(opts.Items, 10, 1.0),
		topics:     newTopics(mix(opts.Seed, 1), opts.Categories),
		userSpread: newSpread(mix(opts.Seed, 2)),
		slotSpread: newSpread(mix(opts.Seed, 3)),
		itemSeed:   mix(opts.Seed, 4),
		favourite:  mix(opts.Seed, 5),
	}
	d := draws{seed: mix(opts.Seed, 6)}
	w.tasteAngle = [2]float64{2 * math.Pi * d.unit(), 2 * math.Pi * d.unit()}
	w.countries = d.unit()
	return w
}

// newTopics draws a vector for each category such that, over the categories, every dimension has mean 0 and mean square
// 1 and no two dimensions correlate. So the appeal of the categories to an interest v has mean 0 and variance |v|²,
// whatever its direction and the seed.
func newTopics(seed uint64, categories int) [][topicDim]float64 {
	d := draws{seed: seed}
	topics := make([][topicDim]float64, categories)
	for c := range topics {
		for k := range topicDim {
			topics[c][k] = normal(d.unit())
		}
	}
	// Gram and Schmidt, with the constant as the first direction.
	for k := range topicDim {
		mean := 0.0
		for c := range topics {
			mean += topics[c][k] / float64(categories)
		}
		for c := range topics {
			topics[c][k] -= mean
		}
		for j := range k {
			dot := 0.0
			for c := range topics {
				dot += topics[c][j] * topics[c][k] / float64(categories)
			}
			for c := range topics {
				topics[c][k] -= dot * topics[c][j]
			}
		}
		square := 0.0
		for c := range topics {
			square += topics[c][k] * topics[c][k] / float64(categories)
		}
		for c := range topics {
			topics[c][k] /= math.Sqrt(square)
		}
	}
	return topics
}

// user returns what is fixed of the user at a place, counted from 0 in the order of popularity.
func (w *world) user(place int) (audience int, country Country, readiness float64) {
	audience = int(w.userSpread.at(0, place) * float64(w.opts.Audiences))
	country = Country(w.userSpread.at(1, place) * numCountries)
	return audience, country, normal(w.userSpread.at(2, place))
}

// generation returns how many items have had a place of the catalogue before the one that has it at example i.
func (w *world) generation(place int, i int64) int64 {
	periods := float64(i) / float64(w.opts.Period)
	return int64(periods*w.opts.Drift.Turnover + w.slotSpread.at(0, place))
}

// itemID numbers items from 1, a generation after the other.
func (w *world) itemID(place int, generation int64) int64 {
	return generation*int64(w.opts.Items) + int64(place) + 1
}

// item returns what is fixed of an item; quality has mean 0 and standard deviation 1, price too.
func (w *world) item(id int64) (place int, generation int64, category int, quality, price float64) {
	generation, place = (id-1)/int64(w.opts.Items), int((id-1)%int64(w.opts.Items))
	s := newSpread(mix(w.itemSeed, uint64(generation)))
	category = int(s.at(0, place) * float64(w.opts.Categories))
	return place, generation, category, normal(s.at(1, place)), normal(s.at(2, place))
}

// taste returns an audience's taste as of example i: a vector of length tasteLength that turns in two planes at once, so
// that the cosine of the angle it has turned by is its correlation with what it was.
func (w *world) taste(audience int, i int64) [topicDim]float64 {
	periods := float64(i) / float64(w.opts.Period)
	drift := w.opts.Drift
	turn := 2*math.Pi*drift.Rotation*periods + shiftAngle*float64(w.shifts(audience, periods))
	if audience%4 >= 2 {
		turn = -turn
	}
	share := 2 * math.Pi * float64(audience) / float64(w.opts.Audiences)
	s0, c0 := math.Sincos(w.tasteAngle[0] + share + turn)
	s1, c1 := math.Sincos(w.tasteAngle[1] + 3*share + turn)
	const r = tasteLength / math.Sqrt2
	return [topicDim]float64{r * c0, r * s0, r * c1, r * s1}
}

// shifts returns how many shifts have hit an audience: shift n hits the audiences n, n+8, n+16, ..., and so on in turn.
func (w *world) shifts(audience int, periods float64) int64 {
	whole, part := math.Modf(periods)
	moments := w.opts.Drift.Shifts
	happened := int64(whole) * int64(len(moments))
	for _, at := range moments {
		if part >= at {
			happened++
		}
	}
	turns := int64(min(shiftEvery, w.opts.Audiences))
	return (happened - int64(audience)%turns + turns - 1) / turns
}

// logit returns the log odds of a click on ex as the world is at example i, as far as it can be known then: the quality
// of an item that appears later counts as average.
func (w *world) logit(ex *Example, i int64) float64 {
	_, _, readiness := w.user(int(ex.User - 1))
	place, generation, _, quality, price := w.item(ex.Item)
	if generation > w.generation(place, i) {
		quality = 0
	}
	countryPhase := 2 * math.Pi * (w.countries + float64(ex.Country)/numCountries)
	sum := baseLogit +
		userDeviation*readiness +
		countryDeviation*math.Sqrt2*math.Cos(countryPhase) +
		ex.Device.effect() +
		qualityDeviation*quality -
		priceEffect*price

	interest := w.taste(int(ex.Audience-1), i)
	for _, c := range ex.History {
		for k, t := range w.topics[c-1] {
			interest[k] += historyLength * t / float64(len(ex.History))
		}
	}
	s, c := math.Sincos(2 * math.Pi * float64(ex.Hour) / 24)
	interest[0] += moodLength * c
	interest[3] += moodLength * s
	for k, t := range w.topics[ex.Category-1] {
		sum += interest[k] * t
	}
	return sum
}
