package metric

// Window measures the last examples of a stream exactly: each prediction is made before the model learns from its
// example, so the measures are honest without a held-out set (progressive validation; Blum, Kalai and Langford, 1999).
// It keeps 12 bytes an example. Not for concurrent use.
type Window struct {
	// ring[next] is the oldest example once the ring is full.
	probs, labels, weights []float32
	next                   int
	size                   int
	ranker                 Ranker
}

// NewWindow returns a window over the last size examples; a size below 1 is taken as 1. Memory is taken as examples
// come.
func NewWindow(size int) *Window { return &Window{size: max(size, 1)} }

// Len is the number of examples in the window.
func (w *Window) Len() int { return len(w.probs) }

// Add takes the predictions of a batch in the order of the stream. The caller keeps the slices. Nil weights stand for 1.
func (w *Window) Add(probs, labels, weights []float32) {
	checkLengths(probs, labels, weights)
	for i := max(0, len(probs)-w.size); i < len(probs); i++ {
		weight := float32(weightOf(weights, i))
		if len(w.probs) < w.size {
			w.probs, w.labels, w.weights = append(w.probs, probs[i]), append(w.labels, labels[i]), append(w.weights, weight)
			continue
		}
		w.probs[w.next], w.labels[w.next], w.weights[w.next] = probs[i], labels[i], weight
		w.next = (w.next + 1) % w.size
	}
}

// Summary computes all measures of the examples in the window. It allocates nothing once the window is full.
func (w *Window) Summary() Summary { return w.ranker.Summarize(w.probs, w.labels, w.weights) }
