package forward

// Type is what the elements of a value are.
type Type uint8

// The types.
const (
	Float Type = iota // float32
	Int               // int64
	Uint              // uint64
	Bool
)

// Value is a value of the computation that is being written: what the target calls it, and its type. The zero value is none.
type Value struct {
	Name string
	Type Type
}

// Op is an operator on values of one shape, or of shapes that become one by repeating dimensions of 1, element by element but for [MatMul].
type Op uint8

// The operators. Where nothing is said all values and the result have one type.
const (
	Add Op = iota
	Sub
	Mul
	Div // of whole numbers: the quotient that is not above the true one, of numbers from 0 up
	Max
	Min
	MatMul  // [n, k] and [k, m] -> [n, m], of floats
	And     // of the bits of whole numbers
	Xor     // of the bits of [Uint]
	Shift   // of the bits of the first to the right by the second, both [Uint]
	Less    // gives [Bool]
	Equal   // gives [Bool]
	Select  // the second where the first, which is [Bool], is true, the third elsewhere
	Relu    // of floats, and so are those below
	Sigmoid //
	Exp
	Log
	Cos
	Sqrt
	Abs
	Sign
	IsNaN // gives [Bool]
)

// Target is a computation that is being written in some format, operator by operator. A call takes values that earlier calls returned. Nothing fails: what a target has no
// form for is found by [Check] and by the target's own check before.
type Target interface {
	// Scope says what the operators to come belong to, for people who read the result.
	Scope(name string)
	// Floats and Ints are constants, row-major.
	Floats(shape []int64, v ...float32) Value
	Ints(shape []int64, v ...int64) Value
	// Dense is a dense tensor of the layout.
	Dense(tensor int) Value
	// Rows are the rows of a table [rows+1, dim], the last of which is what [Spare] gives.
	Rows(table int) Value
	// Numbers are the places of ids [n] in them -> [n], and the last for ids without a row. It is not called for tables that have none at all, which formats have no hash tables
	// for.
	Numbers(table int, ids Value) Value
	// Op applies an operator.
	Op(op Op, x ...Value) Value
	// Cast changes the type: of whole numbers the bits stay, [Int] to [Float] gives the nearest number, [Float] to [Int] goes towards 0, true is 1.
	Cast(x Value, to Type) Value
	// Half rounds floats to 16 bits, ties to even, and back: to bfloat16 or to IEEE half precision.
	Half(x Value, bfloat bool) Value
	// Size is a dimension, an [Int] without dimensions.
	Size(x Value, axis int) Value
	// Range is 0, 1 ... n-1.
	Range(n Value) Value
	// Before are, for each element of a vector of [Int], the sum of those in front of it.
	Before(x Value) Value
	// Reshape changes the shape; one dimension may be -1: what is left.
	Reshape(x Value, shape ...int64) Value
	// Concat joins along a dimension.
	Concat(axis int, x ...Value) Value
	// Split cuts the first dimension into parts of so many.
	Split(x Value, sizes ...Value) []Value
	// Columns are some columns of a matrix.
	Columns(x Value, from, to int) Value
	// Sum adds up along a dimension, which becomes 1.
	Sum(x Value, axis int) Value
	// Gather takes elements of the first dimension by a vector of their places, or one by its place.
	Gather(x, places Value) Value
	// Where are the places of the true elements of a vector.
	Where(x Value) Value
	// Put is a copy of a matrix with other rows at some places, each of which comes once.
	Put(x, places, rows Value) Value
	// Scatter adds up the rows of a matrix [n, dim] that belong together, or takes the largest of each column: row i to row[i] of the result [rows, dim], and row does not go down. What no row
	// belongs to is 0, or the smallest number.
	Scatter(x, row, rows Value, largest bool) Value
	// Loop makes a matrix of floats again and again, so many times: body is given which time it is, from 0, the matrix, and what it uses besides constants, and returns a matrix of the same shape. It has no loop
	// of its own. The result is the last matrix, the one given where times is 0.
	Loop(times, x Value, uses []Value, body func(step, x Value, uses []Value) Value) Value
}
