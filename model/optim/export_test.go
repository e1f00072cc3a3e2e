package optim

// Draw is what a number is rounded to stochastically, by 16 random bits.
func (v ValueType) Draw(x float32, r uint32) float32 { return v.draw(x, r) }
