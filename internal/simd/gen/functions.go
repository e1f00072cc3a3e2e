package main

import "github.com/mmcloughlin/avo/operand"

// functions are exp, the logistic function, tanh and log: polynomials of Cephes (Moshier, 1989), with a rounding after each
// product, so that all families give the same bits.
func (a *asm) functions() {
	a.each("exp", "is y = eˣ.", []string{"x", "y"}, nil, 1, func(o operands, _ []vector) {
		o.store(a.exp(o.load(0)), 1)
	})
	a.each("expShifted", "is y = e^(x-shift).", []string{"x", "y"}, []string{"shift"}, 1, func(o operands, s []vector) {
		o.store(a.exp(a.sub(o.load(0), s[0])), 1)
	})
	a.each("sigmoid", "is y = 1/(1+e⁻ˣ).", []string{"x", "y"}, nil, 1, func(o operands, _ []vector) {
		// e^-|x| never overflows: 1/(1+e) from 0 up, e/(1+e) below.
		one, x := a.broadcast(a.constant(1)), o.load(0)
		e := a.exp(a.or(x, a.constantBits(0x80000000)))
		o.store(a.div(a.choose(a.compare(x, less, a.zeros()), e, one), a.add(e, one)), 1)
	})
	a.each("tanh", "is y = tanh x.", []string{"x", "y"}, nil, 1, func(o operands, _ []vector) {
		o.store(a.tanh(o.load(0)), 1)
	})
	a.each("log", "is y = ln x.", []string{"x", "y"}, nil, 1, func(o operands, _ []vector) {
		o.store(a.log(o.load(0)), 1)
	})
}

// polynomial is Σ c[i]·x^(n-1-i) by Horner's rule.
func (a *asm) polynomial(x vector, c ...float64) vector {
	p := a.mul(x, a.constant(c[0]))
	for i, v := range c[1:] {
		p = a.add(p, a.constant(v))
		if i < len(c)-2 {
			p = a.mul(p, x)
		}
	}
	return p
}

func (a *asm) toInt(x vector) vector   { v := a.vec(); a.VCVTPS2DQ(x, v); return v }
func (a *asm) toFloat(x vector) vector { v := a.vec(); a.VCVTDQ2PS(x, v); return v }

func (a *asm) addInt(x vector, y operand.Op) vector { v := a.vec(); a.VPADDD(y, x, v); return v }
func (a *asm) subInt(x vector, y operand.Op) vector { v := a.vec(); a.VPSUBD(y, x, v); return v }
func (a *asm) left(x vector, n int) vector          { v := a.vec(); a.VPSLLD(imm(n), x, v); return v }

func (a *asm) right(x vector, n int) vector { v := a.vec(); a.VPSRLD(imm(n), x, v); return v }

func (a *asm) rightSigned(x vector, n int) vector { v := a.vec(); a.VPSRAD(imm(n), x, v); return v }

// exp is 2ⁿ·e^r, n the nearest integer to x/ln 2. 2ⁿ is multiplied in two halves, so that results may be infinite and
// denormal. min and max return their second operand for a NaN: x.
func (a *asm) exp(x vector) vector {
	x = a.max(a.broadcast(a.constant(-104)), x)
	x = a.min(a.broadcast(a.constant(89)), x)
	n := a.toInt(a.mul(x, a.constant(1.44269504088896341)))
	f := a.toFloat(n)
	r := a.sub(x, a.mul(f, a.constant(0.693359375)))
	r = a.sub(r, a.mul(f, a.constant(-2.12194440e-4)))
	p := a.polynomial(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	p = a.add(a.add(a.mul(p, a.mul(r, r)), r), a.constant(1))
	half := a.rightSigned(n, 1)
	p = a.mul(p, a.power(half))
	return a.mul(p, a.power(a.subInt(n, half)))
}

// power is 2ⁿ, -127 < n < 128.
func (a *asm) power(n vector) vector { return a.left(a.addInt(n, a.constantBits(127)), 23) }

// tanh is x + x³·P(x²) near 0 and 1 - 2/(e^2|x|+1) with the sign of x elsewhere.
func (a *asm) tanh(x vector) vector {
	z := a.mul(x, x)
	near := a.polynomial(z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
	near = a.add(a.mul(a.mul(near, z), x), x)
	size := a.and(x, a.constantBits(0x7fffffff))
	one := a.broadcast(a.constant(1))
	far := a.div(a.broadcast(a.constant(2)), a.add(a.exp(a.add(size, size)), one))
	far = a.or(a.sub(one, far), a.and(x, a.constantBits(0x80000000)))
	return a.choose(a.compare(size, less, a.constant(0.625)), near, far)
}

// log takes x apart into m·2ⁿ, √½ ≤ m < √2. Denormal numbers are multiplied by 2²³ before. What is below 0 gives NaN, 0 gives
// -Inf, Inf and NaN give themselves.
func (a *asm) log(x vector) vector {
	zero := a.zeros()
	small := a.compare(x, less, a.constant(1.1754943508222875e-38))
	y := a.choose(small, a.mul(x, a.constant(8388608)), x)
	n := a.sub(a.toFloat(a.subInt(a.right(y, 23), a.constantBits(126))), a.where(small, a.broadcast(a.constant(23))))
	m := a.or(a.and(y, a.constantBits(0x007fffff)), a.constantBits(0x3f000000))
	low := a.compare(m, less, a.constant(0.707106781186547524))
	n = a.sub(n, a.where(low, a.broadcast(a.constant(1))))
	m = a.sub(a.add(m, a.where(low, m)), a.constant(1))
	z := a.mul(m, m)
	p := a.polynomial(m, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
		-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
	p = a.mul(a.mul(p, m), z)
	p = a.add(p, a.mul(n, a.constant(-2.12194440e-4)))
	p = a.sub(p, a.mul(z, a.constant(0.5)))
	p = a.add(a.add(m, p), a.mul(n, a.constant(0.693359375)))
	// x - x is NaN for what is infinite or NaN; below 0 and 0 come last.
	inf := a.broadcast(a.constantBits(0x7f800000))
	p = a.choose(a.compare(x, less, inf), p, x)
	p = a.choose(a.compare(x, less, zero), a.broadcast(a.constantBits(0x7fc00000)), p)
	return a.choose(a.compare(x, equal, zero), a.broadcast(a.constantBits(0xff800000)), p)
}
