package migrate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/tfbundle"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// initial is a dense tensor that starts over.
func initial(l *param.Layout, spec param.Tensor) snapshot.Tensor {
	t := snapshot.Tensor{Name: spec.Name, Weights: make([]float32, spec.Len()), State: make([]float32, spec.Optimizer.StateDim(spec.Len()))}
	for _, d := range spec.Shape {
		t.Shape = append(t.Shape, int64(d))
	}
	spec.Init.Fill(t.Weights, l.Seed, param.HashName(spec.Name), 0)
	spec.Optimizer.Init(t.Weights, t.State)
	return t
}

// tensors makes the dense tensors: those that the mapping names of the checkpoint's variables, and those that are called the same there,
// the others have their initial values.
func (i *importer) tensors(by *Mapping) ([]snapshot.Tensor, error) {
	var out []snapshot.Tensor
	var names []string
	for _, spec := range i.layout.Dense {
		out, names = append(out, initial(i.layout, spec)), append(names, spec.Name)
	}
	bundle, err := tfbundle.Open(i.ctx, fsx.Local{}, i.found.Prefix)
	named := by != nil && len(by.Dense) > 0
	switch {
	case errors.Is(err, tfbundle.ErrNone) && !named:
		i.denseInitial = names
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("job: dense variables: %w", err)
	}
	shapes := map[string][]int64{}
	var there []string
	for _, t := range bundle.Tensors() {
		shapes[t.Name], there = t.Shape, append(there, t.Name)
	}
	from := map[string]DenseMapping{} // by tensor
	var faults []error
	bad := func(text string, args ...any) { faults = append(faults, fault.Config("mapping: "+text, args...)) }
	if named {
		for k, d := range by.Dense {
			_, twice := from[d.To]
			_, found := shapes[d.Name]
			switch {
			case !slices.Contains(names, d.To):
				bad("dense[%d].to is %q, no dense tensor of the job%s", k, d.To, nearest.Suggest(d.To, names))
			case !found:
				bad("dense[%d].name is %q, no variable of %s%s", k, d.Name, i.found.Prefix, nearest.Suggest(d.Name, there))
			case twice:
				bad("dense[%d].to: tensor %s is named twice", k, d.To)
			}
			from[d.To] = d
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for k := range out {
		d, asked := from[out[k].Name]
		if !asked {
			d = DenseMapping{Name: out[k].Name, To: out[k].Name}
		}
		shape, found := shapes[d.Name]
		if !found {
			i.denseInitial = append(i.denseInitial, out[k].Name)
			continue
		}
		if err := fits(shape, &out[k], d.Transpose); err != nil {
			bad("dense variable %s: %w", d.Name, err)
			continue
		}
		weights, err := bundle.Float32(i.ctx, d.Name)
		if err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
		if !finite(weights) {
			bad("dense variable %s is not finite", d.Name)
			continue
		}
		if d.Transpose {
			weights = transposed(weights, int(out[k].Shape[1]))
		}
		copy(out[k].Weights, weights)
		i.layout.Dense[k].Optimizer.Init(out[k].Weights, out[k].State)
		i.denseTaken = append(i.denseTaken, out[k].Name)
	}
	return out, errors.Join(faults...)
}

// fits reports whether a variable of a shape can become a tensor: dimensions of 1 do not count, so that [8] becomes [8, 1] and [1, 8].
func fits(shape []int64, to *snapshot.Tensor, transpose bool) error {
	if transpose {
		if len(shape) != 2 || len(to.Shape) != 2 {
			return fmt.Errorf("its shape is %v and that of tensor %s %v: matrices are transposed", shape, to.Name, to.Shape)
		}
		shape = []int64{shape[1], shape[0]}
	}
	above := func(d int64) bool { return d == 1 }
	if !slices.Equal(slices.DeleteFunc(slices.Clone(shape), above), slices.DeleteFunc(slices.Clone(to.Shape), above)) {
		return fmt.Errorf("its shape is %v, that of tensor %s %v", shape, to.Name, to.Shape)
	}
	return nil
}

// transposed exchanges rows and columns of a matrix; columns is how many the result has.
func transposed(x []float32, columns int) []float32 {
	out := make([]float32, len(x))
	rows := len(x) / max(columns, 1)
	for r := range rows {
		for c := range columns {
			out[r*columns+c] = x[c*rows+r]
		}
	}
	return out
}
