package metric

// Window keeps the last examples of a stream for metrics: each prediction is made before the model learns from its example,
// so the measures are honest without a held-out set (progressive validation; Blum, Kalai and Langford, 1999). It keeps 12
// bytes an example, of several classes 4 more for each. Not for concurrent use.
type Window struct {
	size int
	// next is the oldest example once there are size of them.
	next int
	set  Set
	// added is the batch at work.
	added Set
	work  Workspace
}

// NewWindow returns a window over the last size examples; a size below 1 is taken as 1. Memory is taken as examples
// come.
func NewWindow(size int) *Window { return &Window{size: max(size, 1)} }

// Len is the number of examples in the window.
func (w *Window) Len() int { return w.set.Len() }

// Set is the examples in the window, in no order; it belongs to the window.
func (w *Window) Set() *Set { return &w.set }

// Add takes the outputs of a batch in the order of the stream; see [Set.Add].
func (w *Window) Add(width int, predictions, labels, weights []float32, mask []bool) {
	w.added.Reset()
	w.added.Add(width, predictions, labels, weights, mask)
	if w.added.Len() == 0 {
		return
	}
	w.set.Classes = w.added.Classes
	per := max(1, w.added.Classes)
	for i := max(0, w.added.Len()-w.size); i < w.added.Len(); i++ {
		weight, predictions := float32(weightOf(w.added.Weights, i)), w.added.Predictions[i*per:(i+1)*per]
		if w.set.Len() < w.size {
			w.set.Predictions, w.set.Labels = append(w.set.Predictions, predictions...), append(w.set.Labels, w.added.Labels[i])
			w.set.Weights = append(w.set.Weights, weight)
			continue
		}
		copy(w.set.Predictions[w.next*per:], predictions)
		w.set.Labels[w.next], w.set.Weights[w.next] = w.added.Labels[i], weight
		w.next = (w.next + 1) % w.size
	}
}

// Compute returns a metric of the examples in the window. It allocates nothing once the window is full.
func (w *Window) Compute(m Metric) float64 { return m.Measure(&w.work, &w.set) }
