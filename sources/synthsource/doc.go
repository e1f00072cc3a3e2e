// Package synthsource is a synthetic click stream whose click probabilities are known, for demos, tests and benchmarks:
// next to a model's AUC it reports the best AUC that any model could reach, and because the world it comes from drifts, it
// shows what training online is worth.
//
// [Stream] is the generator: example i is a function of the options and i alone, so any part of the stream can be made
// anywhere, in any order. [Source] reads it as blocks of serialized tf.Example records (key: the user; time: event time),
// and [Stream.HeldOut] draws examples that are not in the stream, for an unbiased evaluation.
//
// # The world
//
// Users (popularity, audience, country, an own readiness to click) are shown items (popularity, category, price, quality)
// on a device at a local hour, and have a history of categories seen before. The log odds of a click are
//
//	logit = base + user + country + device + quality(item) - price(item) + interest · topic(category)
//	interest = taste(audience, now) + mean of topic(history) + mood(hour)
//
// with topics and interests in four dimensions: a model of rank four could be perfect, a linear one cannot, since what
// an interest adds has mean zero over the categories. About 31 % of the examples are clicks and the best AUC is .80 to
// .85.
//
// After a click the user watches for a while, log-normal minutes that are expected to be more the likelier the click was:
//
//	E[minutes] = 3 · e^(logit/2)
//
// They are a second label, a number that only clicks have. The best squared error leaves about a quarter of their variance.
//
// # The drift
//
// Places in the catalogue change hands in turn: an item disappears and a new one, with an id never seen before, inherits
// its popularity. Audiences' tastes rotate steadily, and now and then one turns by a sixth of a circle at once. See
// [Drift].
//
// The parts of the world are spread evenly (quasi-random sequences, equal variances) rather than drawn independently, so
// that worlds of different seeds differ in every detail but hardly in how much there is to learn.
//
// # What to expect
//
// One pass over the default stream with DeepFM (dim 8, hidden 64 and 32) ends about .009 below the best AUC and about .04
// above the same model frozen half way; logistic regression stays more than .1 below the best. Rules that did well:
// batches of 256, Adagrad (learning rate .05, initial accumulator 1e-4) for vectors, FTRL (the same) for biases, Adam
// (.002) for dense parameters, and no more than about 500 examples between a lookup and the update that follows it.
package synthsource
