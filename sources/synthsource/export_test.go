package synthsource

// For the tests of what the world is made of.
var (
	NewTopics     = newTopics
	NewSpread     = newSpread
	NewPopularity = newPopularity
	Normal        = normal
)

const TopicDim = topicDim

func (s spread) At(d, k int) float64     { return s.at(d, k) }
func (p popularity) Place(u float64) int { return p.place(u) }
