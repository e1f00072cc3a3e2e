package trainstep

import "github.com/monolith-go/monolith/model"

// inData maps predictions to the data that a model learns from ([model.Head.InData]). Metrics over that
// data need it: labels that were sampled have other frequencies than the predictions that are served.
type inData struct {
	heads  []model.Head
	buffer [][]float32
	out    [][]float32
}

// newInData returns nil for a model whose predictions are those of its data.
func newInData(m model.Model) *inData {
	for _, h := range m.Heads() {
		if h.Sampled() {
			return &inData{heads: m.Heads()}
		}
	}
	return nil
}

// of returns the predictions of each head in the data. It keeps the caller's slices as they are. The result
// is valid until the next call.
func (d *inData) of(predictions [][]float32) [][]float32 {
	if d == nil {
		return predictions
	}
	d.buffer = resize(d.buffer, len(predictions))
	d.out = resize(d.out, len(predictions))
	for i := range predictions {
		if !d.heads[i].Sampled() {
			d.out[i] = predictions[i]
			continue
		}
		d.buffer[i] = resize(d.buffer[i], len(predictions[i]))
		for k, p := range predictions[i] {
			d.buffer[i][k] = d.heads[i].InData(p)
		}
		d.out[i] = d.buffer[i]
	}
	return d.out
}
