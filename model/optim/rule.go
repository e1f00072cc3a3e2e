package optim

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// Rule is an update rule as data: its name and every setting, defaults included. Snapshots carry it, so that what a
// parameter was trained by can be read without the job.
type Rule struct {
	// Name is [Optimizer].Name.
	Name string `json:"name"`
	// Settings are JSON values by the key they have in a job file. They are empty for a rule of another package.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
}

// RuleOf describes an update rule. Rules of other packages are described by their exported fields, if these marshal.
func RuleOf(o Optimizer) Rule {
	if rounded, ok := o.(Rounded); ok {
		r := RuleOf(rounded.Rule)
		r.Name = o.Name()
		return r
	}
	r := Rule{Name: o.Name()}
	for _, k := range kinds() {
		if full, ok := k.full(o); ok {
			o = full
		}
	}
	b, err := json.Marshal(o)
	if err != nil || json.Unmarshal(b, &r.Settings) != nil {
		r.Settings = nil
	}
	if len(r.Settings) == 0 {
		r.Settings = nil
	}
	return r
}

// Optimizer makes the rule that r describes. Errors: for a name that is not known, a setting that is none of the rule's, a
// value out of range.
func (r Rule) Optimizer() (Optimizer, error) {
	if name, values := cutValues(r.Name); values != FP32 {
		o, err := Rule{Name: name, Settings: r.Settings}.Optimizer()
		if err != nil {
			return nil, err
		}
		return Rounded{Rule: o, Values: values}, nil
	}
	for _, k := range kinds() {
		if k.name != r.Name {
			continue
		}
		b, err := json.Marshal(r.Settings)
		if err != nil {
			return nil, fmt.Errorf("optim: %s: %w", r.Name, err)
		}
		if r.Settings == nil {
			b = []byte("{}")
		}
		o, err := k.parse(b)
		if err != nil {
			return nil, fmt.Errorf("optim: %s: %w", r.Name, err)
		}
		return o, Validate(o)
	}
	return nil, fmt.Errorf("optim: no rule is called %q", r.Name)
}

// kind is a rule that this package has.
type kind struct {
	name  string
	parse func(b []byte) (Optimizer, error)
	// full returns a rule of this kind with its defaults.
	full func(o Optimizer) (Optimizer, bool)
}

// kinds lists the rules of this package.
func kinds() []kind {
	return []kind{
		of[SGD](), of[Momentum](), of[Adagrad](), of[AdagradW](), of[LazyAdagradW](), of[RowAdagrad](), of[GroupAdagrad](), of[Adadelta](), of[RMSprop](),
		of[Adam](), of[AdamW](), of[DenseAdam](), of[Adamom](), of[AMSGrad](), of[LAMB](), of[Shampoo](), of[FTRL](), of[GroupFTRL](), of[EMA](), of[BatchSoftmax](), of[Intercept](),
	}
}

func of[T interface {
	Optimizer
	WithDefaults() T
}]() kind {
	var zero T
	return kind{
		name: zero.Name(),
		parse: func(b []byte) (Optimizer, error) {
			var o T
			dec := json.NewDecoder(bytes.NewReader(b))
			dec.DisallowUnknownFields()
			err := dec.Decode(&o)
			return o.WithDefaults(), err
		},
		full: func(o Optimizer) (Optimizer, bool) {
			t, ok := o.(T)
			if !ok {
				return nil, false
			}
			return t.WithDefaults(), true
		},
	}
}

// Frozen is the rule of parameters that are only read: it keeps no state, and an update changes nothing.
type Frozen struct {
	// Values is the format of the weights.
	Values ValueType `json:"-"`
}

var (
	_ Optimizer  = Frozen{}
	_ RowUpdater = Frozen{}
)

// Name is "frozen".
func (Frozen) Name() string { return "frozen" }

// String is "frozen()".
func (Frozen) String() string { return "frozen()" }

// StateDim is 0.
func (Frozen) StateDim(int) int { return 0 }

// Init does nothing: there is no state.
func (Frozen) Init(_, _ []float32) {}

// Update changes nothing.
func (Frozen) Update(_, _, _ []float32, _ float32) {}

// UpdateRows implements [RowUpdater].
func (Frozen) UpdateRows(*simd.Segments, float32) {}
