package simd

import (
	"math"
	"unsafe"
)

// Segments are the same columns of many rows, and the gradients to update them by: [Segments.SGD] and its kin do to each row what the
// functions of the same names do to a vector, with the same bits, however rows are divided among calls. A Segments keeps its buffers,
// so that one that is used again allocates nothing; it is used by one goroutine at a time.
type Segments struct {
	// Rows are the addresses of the rows, each a multiple of 4; one that occurs twice is updated twice. Their memory neither moves nor
	// goes away. Distinct says that none occurs twice, so that nobody looks whether one does.
	Rows     []uintptr
	Distinct bool
	// Weights and State are where in a row they begin, in bytes. Weights are Dim floats, the state is as many for each of the vectors
	// that a rule has.
	Weights, State uintptr
	Dim            int
	// Grads has the Dim floats of row i from i·Step on.
	Grads []float32
	Step  int
	// L2 times the weights is added to the gradients, unless it is 0.
	L2 float32

	// from and to are the rows that are in buffer.
	from, to      int
	buffer, rates []float32
	// decayed is a gradient with L2 times the weights.
	decayed []float32
	// seen has for what addresses hash to, or behind it, the number of the last run that had one, times longestRun, and that of the row in it.
	seen [1 << seenBits]uint16
	run  uint16
}

const (
	seenBits = 11
	// longestRun is as many rows as numbers in a run tell apart.
	longestRun = 1 << 8
)

// narrow is the number of floats below which rows are copied into vectors for the functions that have those, several rows to a register.
const narrow = 8

// inPlace begins an update and reports whether there is something to do that kernels do where the rows lie.
func (s *Segments) inPlace() bool {
	s.from, s.to = 0, 0
	if n := len(s.Rows); n > 0 {
		_ = s.Grads[(n-1)*s.Step:][:s.Dim]
		return s.Dim >= narrow && active != Portable
	}
	return false
}

// SGD is [SGD] of each row.
func (s *Segments) SGD(rate float32) {
	if s.inPlace() {
		sgdRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, rate)
		return
	}
	for s.next() {
		if i, n := s.singles(); n > 0 {
			sgdSinglesAVX2(n, &s.Rows[i], s.Weights, s.State, &s.Grads[i*s.Step], 4*s.Step, s.L2, rate)
		}
		if s.from == s.to {
			continue
		}
		v := s.pack(0)
		SGD(v[0], v[1], rate)
		s.unpack(0)
	}
}

// EMA is [EMA] of each row.
func (s *Segments) EMA(decay, rest float32) {
	if s.inPlace() {
		emaRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, decay, rest)
		return
	}
	for s.next() {
		v := s.pack(0)
		EMA(v[0], v[1], decay, rest)
		s.unpack(0)
	}
}

// Adagrad is [Adagrad] of each row; the state is n.
func (s *Segments) Adagrad(rate, decay float32) {
	if s.inPlace() {
		adagradRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, rate, decay)
		return
	}
	for s.next() {
		if i, n := s.singles(); n > 0 {
			adagradSinglesAVX2(n, &s.Rows[i], s.Weights, s.State, &s.Grads[i*s.Step], 4*s.Step, s.L2, rate, decay)
		}
		if s.from == s.to {
			continue
		}
		v := s.pack(1)
		Adagrad(v[0], v[1], v[2], rate, decay)
		s.unpack(1)
	}
}

// AdagradW is [AdagradW] of each row; the state is n.
func (s *Segments) AdagradW(rate, shrink float32) {
	if s.inPlace() {
		adagradWRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, rate, shrink)
		return
	}
	for s.next() {
		v := s.pack(1)
		AdagradW(v[0], v[1], v[2], rate, shrink)
		s.unpack(1)
	}
}

// Each calls f with the weights, so many vectors of state and the gradients of some rows at a time, one row after the other, for rules that have no kernel.
// What f writes to weights and state goes back to the rows.
func (s *Segments) Each(states int, f func(v [5][]float32)) {
	for s.inPlace(); s.next(); s.unpack(states) {
		f(s.pack(states))
	}
}

// RMSprop is [RMSprop] of each row; the state is n.
func (s *Segments) RMSprop(o AveragesRule) {
	if s.inPlace() {
		rmspropRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, o.Rate, o.Rho, o.Rest, o.Epsilon, o.Decay)
		return
	}
	for s.next() {
		v := s.pack(1)
		RMSprop(v[0], v[1], v[2], o)
		s.unpack(1)
	}
}

// Adadelta is [Adadelta] of each row; the state is a and c.
func (s *Segments) Adadelta(o AveragesRule) {
	if s.inPlace() {
		adadeltaRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, o.Rate, o.Rho, o.Rest, o.Epsilon, o.Decay)
		return
	}
	for s.next() {
		v := s.pack(2)
		Adadelta(v[0], v[1], v[2], v[3], o)
		s.unpack(2)
	}
}

// Momentum is [Momentum] of each row; the state is v.
func (s *Segments) Momentum(o MomentumRule) {
	if s.inPlace() {
		n, at, grads, step := len(s.Rows), &s.Rows[0], &s.Grads[0], 4*s.Step
		if o.Nesterov {
			momentumNesterovRowsAVX2(n, at, s.Weights, s.State, s.Dim, grads, step, s.L2, o.Rate, o.Mu, o.Decay, 1+o.Mu)
		} else {
			momentumRowsAVX2(n, at, s.Weights, s.State, s.Dim, grads, step, s.L2, o.Rate, o.Mu, o.Decay)
		}
		return
	}
	for s.next() {
		switch i, n := s.singles(); {
		case n > 0 && o.Nesterov:
			momentumNesterovSinglesAVX2(n, &s.Rows[i], s.Weights, s.State, &s.Grads[i*s.Step], 4*s.Step, s.L2, o.Rate, o.Mu, o.Decay, 1+o.Mu)
		case n > 0:
			momentumSinglesAVX2(n, &s.Rows[i], s.Weights, s.State, &s.Grads[i*s.Step], 4*s.Step, s.L2, o.Rate, o.Mu, o.Decay)
		}
		if s.from == s.to {
			continue
		}
		v := s.pack(1)
		Momentum(v[0], v[1], v[2], o)
		s.unpack(1)
	}
}

// FTRL is [FTRL] of each row; the state is n and z.
func (s *Segments) FTRL(rate, beta, l1, l2 float32) {
	if s.inPlace() {
		ftrlRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, rate, beta, l1, l2, l2*rate)
		return
	}
	for s.next() {
		if i, n := s.singles(); n > 0 {
			ftrlSinglesAVX2(n, &s.Rows[i], s.Weights, s.State, &s.Grads[i*s.Step], 4*s.Step, s.L2, rate, beta, l1, l2, l2*rate)
		}
		if s.from == s.to {
			continue
		}
		v := s.pack(2)
		FTRL(v[0], v[1], v[2], v[3], rate, beta, l1, l2)
		s.unpack(2)
	}
}

// Adam is [Adam] of each row. The state is m and v and, after them, 1-β₁ᵗ and 1-β₂ᵗ of the t updates of the row, which are made those of
// t+1. The rate is rate·√(1-β₂ᵗ)/(1-β₁ᵗ), in place of o.Rate.
func (s *Segments) Adam(o AdamRule, rate float64, beta2 float32) {
	if s.inPlace() {
		s.correct(s.Rows, 2, rate, float64(o.Beta1), float64(beta2), 1)
		n, at, grads, step := len(s.Rows), &s.Rows[0], &s.Grads[0], 4*s.Step
		if o.Nesterov {
			adamNesterovRowsAVX2(n, at, s.Weights, s.State, s.Dim, grads, step, s.L2, &s.rates[0], o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
		} else {
			adamRowsAVX2(n, at, s.Weights, s.State, s.Dim, grads, step, s.L2, &s.rates[0], o.C1, o.C2, o.Epsilon, o.Decay)
		}
		return
	}
	for s.next() {
		s.correct(s.Rows[s.from:s.to], 2, rate, float64(o.Beta1), float64(beta2), s.Dim)
		v := s.pack(2)
		adamRates(v[0], v[1], v[2], v[3], s.rates, o)
		s.unpack(2)
	}
}

// AMSGrad is [AMSGrad] of each row. The state is m, v and h and, after them, what Adam's has.
func (s *Segments) AMSGrad(o AdamRule, rate float64, beta2 float32) {
	if s.inPlace() {
		s.correct(s.Rows, 3, rate, float64(o.Beta1), float64(beta2), 1)
		n, at, grads, step := len(s.Rows), &s.Rows[0], &s.Grads[0], 4*s.Step
		if o.Nesterov {
			amsgradNesterovRowsAVX2(n, at, s.Weights, s.State, s.Dim, grads, step, s.L2, &s.rates[0], o.C1, o.C2, o.Epsilon, o.Decay, o.Beta1)
		} else {
			amsgradRowsAVX2(n, at, s.Weights, s.State, s.Dim, grads, step, s.L2, &s.rates[0], o.C1, o.C2, o.Epsilon, o.Decay)
		}
		return
	}
	for s.next() {
		s.correct(s.Rows[s.from:s.to], 3, rate, float64(o.Beta1), float64(beta2), s.Dim)
		v := s.pack(3)
		amsgradRates(v[0], v[1], v[2], v[3], v[4], s.rates, o)
		s.unpack(3)
	}
}

// RowAdagrad is [RowAdagrad] of each row; the state is the sum.
func (s *Segments) RowAdagrad(rate, decay float32) {
	if s.inPlace() {
		rowAdagradRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, rate, decay)
		return
	}
	for i := range s.Rows {
		w, state, g := s.row(i)
		RowAdagrad(w, state, g, rate, decay)
	}
}

// GroupAdagrad is [GroupAdagrad] of each row; the state is the sum.
func (s *Segments) GroupAdagrad(rate, decay, beta, l2 float32) {
	if s.inPlace() {
		groupAdagradRowsAVX2(len(s.Rows), &s.Rows[0], s.Weights, s.State, s.Dim, &s.Grads[0], 4*s.Step, s.L2, rate, decay, beta, l2)
		return
	}
	for i := range s.Rows {
		w, state, g := s.row(i)
		GroupAdagrad(w, state, g, rate, decay, beta, l2)
	}
}

// row returns the weights, the one number of state and the gradient of a row, which is valid until the next.
func (s *Segments) row(i int) (w, state, g []float32) {
	at := s.Rows[i]
	w, state, g = floatsAt(at+s.Weights, s.Dim), floatsAt(at+s.State, 1), s.Grads[i*s.Step:][:s.Dim]
	if s.L2 == 0 {
		return w, state, g
	}
	s.decayed = append(s.decayed[:0], g...)
	AddScaled(s.L2, w, s.decayed)
	return w, state, s.decayed
}

// correct updates the corrections of the biases of Adam's averages, which lie behind so many vectors of state, and makes the rates of the
// rows of them, each so many times.
func (s *Segments) correct(rows []uintptr, vectors int, rate, beta1, beta2 float64, times int) {
	s.rates = s.rates[:0]
	for _, at := range rows {
		b := floatsAt(at+s.State+uintptr(4*vectors*s.Dim), 2)
		b1, b2 := float32((1-beta1)+float64(beta1*float64(b[0]))), float32((1-beta2)+float64(beta2*float64(b[1])))
		b[0], b[1] = b1, b2
		r := float32(rate * math.Sqrt(float64(b2)) / float64(b1))
		for range times {
			s.rates = append(s.rates, r)
		}
	}
}

// next makes from and to the next rows without two of the same address, and reports whether there are any.
func (s *Segments) next() bool {
	if s.to == len(s.Rows) {
		return false
	}
	if s.Distinct {
		s.from, s.to = s.to, len(s.Rows)
		return true
	}
	if s.run++; s.run == longestRun {
		clear(s.seen[:])
		s.run = 1
	}
	s.from = s.to
	rows, seen, run := s.Rows[s.from:min(s.from+longestRun, len(s.Rows))], &s.seen, s.run*longestRun
	for i, at := range rows {
		h := uint64(at) * 0x9e3779b97f4a7c15 >> (64 - seenBits)
		for seen[h] >= run {
			if rows[seen[h]-run] == at {
				s.to += i
				return true
			}
			h = (h + 1) % (1 << seenBits)
		}
		seen[h] = run + uint16(i)
	}
	s.to += len(rows)
	return true
}

// singles returns how many of the rows from from on, which are of one weight, a kernel for such takes, and lets from be behind them.
func (s *Segments) singles() (first, n int) {
	if s.Dim != 1 || active == Portable {
		return s.from, 0
	}
	first, n = s.from, (s.to-s.from)&^7
	s.from += n
	return first, n
}

// pack copies weights, so many vectors of state and the gradients of the rows into vectors, one row after the other.
func (s *Segments) pack(states int) (v [5][]float32) {
	size := (s.to - s.from) * s.Dim
	if all := (states + 2) * size; cap(s.buffer) < all {
		s.buffer = make([]float32, (states+2)*len(s.Rows)*s.Dim)
	}
	for i := range states + 2 {
		v[i] = s.buffer[i*size:][:size:size]
	}
	for i := range states + 1 {
		s.copy(i, v[i], false)
	}
	grads, from := v[states+1], s.Grads[s.from*s.Step:]
	if s.L2 == 0 && s.Step == s.Dim {
		v[states+1] = from[:size]
		return v
	}
	if s.Dim == 1 { // calls that copy one number each take longer than the rule
		for i := range grads {
			grads[i] = from[i*s.Step]
		}
	} else {
		for i := range s.to - s.from {
			copy(grads[i*s.Dim:][:s.Dim], from[i*s.Step:][:s.Dim])
		}
	}
	if s.L2 != 0 {
		AddScaled(s.L2, v[0], grads)
	}
	return v
}

// unpack copies weights and state back.
func (s *Segments) unpack(states int) {
	size := (s.to - s.from) * s.Dim
	for i := range states + 1 {
		s.copy(i, s.buffer[i*size:][:size], true)
	}
}

// copy copies weights (0) or a vector of state from the rows to v, or back.
func (s *Segments) copy(i int, v []float32, back bool) {
	offset := s.Weights
	if i > 0 {
		offset = s.State + uintptr(4*s.Dim*(i-1))
	}
	rows := s.Rows[s.from:s.to]
	switch {
	case active == Portable || s.Dim >= narrow: // which the kernels of copies do not know
		for k, at := range rows {
			row, part := floatsAt(at+offset, s.Dim), v[k*s.Dim:][:s.Dim]
			if back {
				copy(row, part)
			} else {
				copy(part, row)
			}
		}
	case back:
		unpackSegmentsAVX2(len(rows), &rows[0], offset, s.Dim, &v[0])
	default:
		packSegmentsAVX2(len(rows), &rows[0], offset, s.Dim, &v[0])
	}
}

// floatsAt are the floats at an address.
func floatsAt(at uintptr, n int) []float32 {
	return unsafe.Slice((*float32)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}
