package table

import "github.com/monolith-go/monolith/model/optim"

// kernel says which function updates many rows at once; kernelNone is the rule's own, row by row, which is also the oracle of
// the others.
type kernel uint8

const (
	kernelNone kernel = iota
	kernelAdagrad
	kernelSGD
)

// setKernel finds the function for a segment's rule.
func (s *segmentRule) setKernel() {
	switch o := s.rule.(type) {
	case optim.Adagrad:
		o = o.WithDefaults()
		s.kernel, s.rate, s.decay = kernelAdagrad, o.LR, o.WeightDecay
	case optim.SGD:
		s.kernel, s.rate = kernelSGD, o.WithDefaults().LR
	}
}
