//go:build simd_interpret

package simd

import (
	"embed"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

// With the build tag simd_interpret the kernels of AVX-512 and AMX are not assembled: their text, as it is committed, is interpreted, one
// instruction after the other. So the package's tests check these kernels on processors that cannot run them
// (TestInterpretedAVX512). It is for tests: slow, and it allocates.
const interpreted = true

//go:embed gemm_avx512_amd64.s pairs_avx512_amd64.s tiles_amx_amd64.s vector_avx512_amd64.s
var texts embed.FS

var programs = sync.OnceValue(func() map[string]*program {
	all := map[string]*program{}
	for _, name := range []string{"gemm_avx512_amd64.s", "pairs_avx512_amd64.s", "tiles_amx_amd64.s", "vector_avx512_amd64.s"} {
		text, err := texts.ReadFile(name)
		if err != nil {
			panic(err)
		}
		assemble(string(text), all)
	}
	return all
})

// program is a function: what each instruction does.
type program struct {
	steps  []func(m *machine)
	labels map[string]int
}

// vreg is a vector register as sixteen lanes of bits.
type vreg [16]uint32

func (v *vreg) f(i int) float32       { return math.Float32frombits(v[i]) }
func (v *vreg) setF(i int, x float32) { v[i] = math.Float32bits(x) }
func (v *vreg) d(i int) float64 {
	return math.Float64frombits(uint64(v[2*i]) | uint64(v[2*i+1])<<32)
}

func (v *vreg) setD(i int, x float64) {
	b := math.Float64bits(x)
	v[2*i], v[2*i+1] = uint32(b), uint32(b>>32)
}

// machine is the state of a processor.
type machine struct {
	gp             map[string]*uint64
	v              [32]vreg
	k              [8]uint32
	tiles          [8][16]vreg
	pc             int
	zf, sf, of, cf bool
	frame          []byte
}

// interpret runs a function with its arguments (int, *float32, *float64, *int32, *uint16 or float32) and returns its result.
func interpret(name string, args ...any) float32 {
	p := programs()[name]
	if p == nil {
		panic("simd: no function " + name)
	}
	m := &machine{gp: map[string]*uint64{}, frame: make([]byte, 8*len(args)+16)}
	for r := range strings.FieldsSeq("AX BX CX DX SI DI R8 R9 R10 R11 R12 R13 R14 R15") {
		junk := uint64(0x1234_5678_9abc_def0)
		m.gp[r] = &junk
	}
	at := 0
	put := func(size int, bits uint64) {
		at = (at + size - 1) / size * size
		for i := range size {
			m.frame[at+i] = byte(bits >> (8 * i))
		}
		at += size
	}
	for _, a := range args {
		switch a := a.(type) {
		case int:
			put(8, uint64(a))
		case float32:
			put(4, uint64(math.Float32bits(a)))
		case *byte:
			put(8, uint64(uintptr(unsafe.Pointer(a))))
		case *float32:
			put(8, uint64(uintptr(unsafe.Pointer(a))))
		case *float64:
			put(8, uint64(uintptr(unsafe.Pointer(a))))
		case *int32:
			put(8, uint64(uintptr(unsafe.Pointer(a))))
		case *uint16:
			put(8, uint64(uintptr(unsafe.Pointer(a))))
		default:
			panic(fmt.Sprintf("simd: argument of type %T", a))
		}
	}
	result := (at + 7) / 8 * 8
	for m.pc >= 0 {
		step := p.steps[m.pc]
		m.pc++
		step(m)
	}
	runtime.KeepAlive(args)
	return math.Float32frombits(*(*uint32)(unsafe.Pointer(&m.frame[result])))
}

// operand is what an instruction works on.
type operand struct {
	text   string
	kind   byte // z, y, x (vectors), t (tiles), k, g (general), i (immediate), m (memory), f (frame), l (label)
	n      int  // of a vector or mask register, lanes are by kind
	value  int  // of an immediate, or a displacement
	reg    string
	index  string
	scale  int
	symbol unsafe.Pointer
}

func (o operand) lanes() int { return map[byte]int{'z': 16, 'y': 8, 'x': 4}[o.kind] }

var (
	memory  = regexp.MustCompile(`^(-?\d*)\(([A-Z0-9]+)\)(?:\(([A-Z0-9]+)\*(\d)\))?$`)
	inFrame = regexp.MustCompile(`^\w+\+(\d+)\(FP\)$`)
	inData  = regexp.MustCompile(`^(\w+)<>\+(\d+)\(SB\)$`)
	data    = regexp.MustCompile(`^DATA (\w+)<>\+(\d+)\(SB\)/4, \$0x([0-9a-f]+)$`)
)

func assemble(text string, all map[string]*program) {
	symbols := map[string]*[16]uint32{}
	for line := range strings.Lines(text) {
		if d := data.FindStringSubmatch(strings.TrimSpace(line)); d != nil {
			if symbols[d[1]] == nil {
				symbols[d[1]] = &[16]uint32{}
			}
			offset, _ := strconv.Atoi(d[2])
			bits, _ := strconv.ParseUint(d[3], 16, 32)
			symbols[d[1]][offset/4] = uint32(bits)
		}
	}
	var p *program
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if encoded, name, ok := strings.Cut(line, " // "); ok && strings.HasPrefix(encoded, "LONG ") {
			line = name // what the assembler does not know
		}
		op, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "//") || strings.HasPrefix(line, "#"), op == "DATA", op == "GLOBL", op == "PCALIGN":
		case op == "TEXT":
			p = &program{labels: map[string]int{}}
			all[rest[len("·"):strings.Index(rest, "(SB)")]] = p
		case strings.HasSuffix(line, ":"):
			p.labels[strings.TrimSuffix(line, ":")] = len(p.steps)
		default:
			var ops []operand
			for o := range strings.SplitSeq(strings.TrimSpace(rest), ", ") {
				if o != "" {
					ops = append(ops, parseOperand(o, symbols))
				}
			}
			p.steps = append(p.steps, instruction(p, op, ops))
		}
	}
}

func parseOperand(text string, symbols map[string]*[16]uint32) operand {
	o := operand{text: text, kind: 'l'}
	if f := inFrame.FindStringSubmatch(text); f != nil {
		o.kind = 'f'
		o.value, _ = strconv.Atoi(f[1])
		return o
	}
	if d := inData.FindStringSubmatch(text); d != nil {
		o.kind, o.symbol = 'm', unsafe.Pointer(symbols[d[1]])
		o.value, _ = strconv.Atoi(d[2])
		return o
	}
	if m := memory.FindStringSubmatch(text); m != nil {
		o.kind, o.reg, o.index = 'm', m[2], m[3]
		o.value, _ = strconv.Atoi(m[1])
		o.scale, _ = strconv.Atoi(m[4])
		return o
	}
	if text[0] == '$' {
		v, err := strconv.ParseInt(text[1:], 0, 64)
		if err != nil {
			panic(err)
		}
		o.kind, o.value = 'i', int(v)
		return o
	}
	if n, err := strconv.Atoi(text[1:]); err == nil && strings.ContainsRune("ZYXKT", rune(text[0])) {
		o.kind, o.n = text[0]+'a'-'A', n
		return o
	}
	if strings.Contains(" AX BX CX DX SI DI R8 R9 R10 R11 R12 R13 R14 R15 ", " "+text+" ") {
		o.kind, o.reg = 'g', text
	}
	return o
}

// address is where a memory operand is.
func (m *machine) address(o operand) unsafe.Pointer {
	if o.kind == 'f' {
		return unsafe.Pointer(&m.frame[o.value])
	}
	if o.symbol != nil {
		return unsafe.Add(o.symbol, o.value)
	}
	a := uintptr(*m.gp[o.reg]) + uintptr(o.value)
	if o.index != "" {
		a += uintptr(*m.gp[o.index]) * uintptr(o.scale)
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&a))
}

// bits reads n lanes of an operand.
func (m *machine) bits(o operand, n int) vreg {
	var v vreg
	if o.kind != 'm' && o.kind != 'f' {
		copy(v[:n], m.v[o.n][:n])
		return v
	}
	p := m.address(o)
	for i := range n {
		v[i] = *(*uint32)(unsafe.Add(p, 4*i))
	}
	return v
}

// put writes n lanes of an operand; those of a register beyond them become 0.
func (m *machine) put(o operand, v vreg, n int) {
	if o.kind == 'm' || o.kind == 'f' {
		p := m.address(o)
		for i := range n {
			*(*uint32)(unsafe.Add(p, 4*i)) = v[i]
		}
		return
	}
	clear(v[n:])
	m.v[o.n] = v
}

func (m *machine) integer(o operand) uint64 {
	switch o.kind {
	case 'i':
		return uint64(o.value)
	case 'g':
		return *m.gp[o.reg]
	}
	return *(*uint64)(m.address(o))
}

func (m *machine) sum(a, b uint64) uint64 {
	r := a + b
	m.zf, m.sf, m.of = r == 0, int64(r) < 0, (a^r)&(b^r)>>63 != 0
	return r
}

func (m *machine) difference(a, b uint64) uint64 {
	r := a - b
	m.zf, m.sf, m.of = r == 0, int64(r) < 0, (a^b)&(a^r)>>63 != 0
	return r
}

// instruction returns what one does. Go's assembler has the operands in the reverse of Intel's order.
func instruction(p *program, op string, ops []operand) func(m *machine) {
	last := operand{}
	if len(ops) > 0 {
		last = ops[len(ops)-1]
	}
	if f, ok := binary[op]; ok {
		lanes := last.lanes()
		return func(m *machine) {
			y, x := m.bits(ops[0], lanes), m.bits(ops[1], lanes)
			var v vreg
			for i := range lanes {
				v[i] = f(x[i], y[i])
			}
			m.put(last, v, lanes)
		}
	}
	if f, ok := unary[op]; ok {
		lanes := last.lanes()
		return func(m *machine) {
			v := m.bits(ops[0], lanes)
			for i := range lanes {
				v[i] = f(v[i])
			}
			m.put(last, v, lanes)
		}
	}
	if f, ok := scalar[op]; ok {
		return func(m *machine) {
			y, x := m.bits(ops[0], 1), m.bits(ops[1], 4)
			x[0] = f(x[0], y[0])
			m.put(last, x, 4)
		}
	}
	if f, ok := double[op]; ok {
		lanes := max(last.lanes()/2, 1)
		return func(m *machine) {
			y, x := m.bits(ops[0], 2*lanes), m.bits(ops[1], 2*lanes)
			for i := range lanes {
				x.setD(i, f(x.d(i), y.d(i)))
			}
			m.put(last, x, 2*lanes)
		}
	}
	if f, ok := quad[op]; ok {
		lanes := last.lanes()
		return func(m *machine) {
			y, x := m.bits(ops[0], lanes), m.bits(ops[1], lanes)
			for i := 0; i < lanes; i += 2 {
				q := f(uint64(x[i])|uint64(x[i+1])<<32, uint64(y[i])|uint64(y[i+1])<<32)
				x[i], x[i+1] = uint32(q), uint32(q>>32)
			}
			m.put(last, x, lanes)
		}
	}
	if f, ok := doubleScalar[op]; ok {
		return func(m *machine) {
			y, x := m.bits(ops[0], 2), m.bits(ops[1], 4)
			x.setD(0, f(x.d(0), y.d(0)))
			m.put(last, x, 4)
		}
	}
	if f, ok := jumps[op]; ok {
		return func(m *machine) {
			if f(m) {
				m.pc = p.labels[last.text]
			}
		}
	}
	switch op {
	case "RET":
		return func(m *machine) { m.pc = -1 }
	case "VZEROUPPER", "PREFETCHT0":
		return func(*machine) {}
	case "ADDQ":
		return func(m *machine) { *m.gp[last.reg] = m.sum(*m.gp[last.reg], m.integer(ops[0])) }
	case "SUBQ":
		return func(m *machine) { *m.gp[last.reg] = m.difference(*m.gp[last.reg], m.integer(ops[0])) }
	case "CMPQ":
		return func(m *machine) { m.difference(m.integer(ops[0]), m.integer(ops[1])) }
	case "INCQ":
		return func(m *machine) { *m.gp[last.reg] = m.sum(*m.gp[last.reg], 1) }
	case "DECQ":
		return func(m *machine) { *m.gp[last.reg] = m.difference(*m.gp[last.reg], 1) }
	case "TESTQ":
		return func(m *machine) { m.sum(m.integer(ops[0])&m.integer(ops[1]), 0) }
	case "ANDQ":
		return func(m *machine) { *m.gp[last.reg] = m.sum(*m.gp[last.reg]&m.integer(ops[0]), 0) }
	case "IMULQ":
		return func(m *machine) { *m.gp[last.reg] *= m.integer(ops[0]) }
	case "SHRL":
		return func(m *machine) { *m.gp[last.reg] = uint64(uint32(*m.gp[last.reg]) >> m.integer(ops[0])) }
	case "SHLQ":
		return func(m *machine) { *m.gp[last.reg] <<= m.integer(ops[0]) }
	case "LEAQ":
		return func(m *machine) { *m.gp[last.reg] = uint64(uintptr(m.address(ops[0]))) }
	case "MOVQ":
		return func(m *machine) { *m.gp[last.reg] = m.integer(ops[0]) }
	case "MOVL":
		return func(m *machine) { *m.gp[last.reg] = uint64(uint32(m.integer(ops[0]))) }
	case "MOVLQSX":
		return func(m *machine) { *m.gp[last.reg] = uint64(int64(*(*int32)(m.address(ops[0])))) }
	case "BTQ":
		return func(m *machine) { m.cf = m.integer(ops[1])>>m.integer(ops[0])&1 != 0 }
	case "BZHIL":
		return func(m *machine) { *m.gp[last.reg] = m.integer(ops[1]) & (1<<(m.integer(ops[0])&0xff) - 1) & 0xffffffff }
	case "KMOVW":
		return func(m *machine) { m.k[last.n] = uint32(m.integer(ops[0])) & 0xffff }
	case "MOVSS":
		return func(m *machine) { m.put(last, m.bits(ops[0], 1), 1) }
	case "VMOVSS", "VMOVSD":
		lanes := map[string]int{"VMOVSS": 1, "VMOVSD": 2}[op]
		return func(m *machine) { m.put(last, m.bits(ops[0], lanes), lanes) }
	case "VMOVUPS", "VMOVAPS", "VMOVUPD":
		lanes := max(last.lanes(), ops[0].lanes())
		if len(ops) == 2 {
			return func(m *machine) { m.put(last, m.bits(ops[0], lanes), lanes) }
		}
		return func(m *machine) { // to memory, where the mask is set
			v := m.bits(ops[0], lanes)
			for i := range lanes {
				if m.k[ops[1].n]>>i&1 != 0 {
					*(*uint32)(unsafe.Add(m.address(last), 4*i)) = v[i]
				}
			}
		}
	case "VMOVUPS.Z", "VMOVAPS.Z":
		lanes := last.lanes()
		return func(m *machine) {
			var v vreg
			for i := range lanes {
				if m.k[ops[1].n]>>i&1 == 0 {
					continue
				}
				if ops[0].kind == 'm' {
					v[i] = *(*uint32)(unsafe.Add(m.address(ops[0]), 4*i))
				} else {
					v[i] = m.v[ops[0].n][i]
				}
			}
			m.put(last, v, lanes)
		}
	case "VPBROADCASTQ":
		return func(m *machine) {
			v := m.bits(ops[0], 2)
			for i := range v {
				v[i] = v[i%2]
			}
			m.put(last, v, 16)
		}
	case "VBROADCASTSS":
		lanes := last.lanes()
		return func(m *machine) {
			v := m.bits(ops[0], 1)
			for i := range lanes {
				v[i] = v[0]
			}
			m.put(last, v, lanes)
		}
	case "VFMADD231PS":
		lanes := last.lanes()
		return func(m *machine) {
			y, x, v := m.bits(ops[0], lanes), m.bits(ops[1], lanes), m.v[last.n]
			for i := range lanes {
				v.setF(i, fma(x.f(i), y.f(i), v.f(i)))
			}
			m.put(last, v, lanes)
		}
	case "VDPBF16PS":
		return func(m *machine) {
			y, x, v := m.bits(ops[0], 16), m.bits(ops[1], 16), m.v[last.n]
			for i := range v {
				for _, half := range []int{16, 0} { // what is too small is zero, before and after each sum
					a, b := math.Float32frombits(x[i]>>half<<16), math.Float32frombits(y[i]>>half<<16)
					v.setF(i, normal(fma(normal(a), normal(b), normal(v.f(i)))))
				}
			}
			m.put(last, v, 16)
		}
	case "LDTILECFG":
		return func(m *machine) {
			if c := (*[64]byte)(m.address(ops[0])); *c != tileConfig {
				panic(fmt.Sprintf("simd: tiles as in %v", *c))
			}
		}
	case "TILERELEASE":
		return func(*machine) {}
	case "TILEZERO":
		return func(m *machine) { m.tiles[last.n] = [16]vreg{} }
	case "TILELOADD", "TILESTORED": // the index of the operand in memory is the distance of rows
		o := ops[0]
		if op == "TILESTORED" {
			o = last
		}
		return func(m *machine) {
			row := o
			for r := range 16 {
				row.scale = r
				if op == "TILELOADD" {
					m.tiles[last.n][r] = *(*vreg)(m.address(row))
				} else {
					*(*vreg)(m.address(row)) = m.tiles[ops[0].n][r]
				}
			}
		}
	case "TDPBF16PS":
		return func(m *machine) {
			b, a, c := &m.tiles[ops[0].n], &m.tiles[ops[1].n], &m.tiles[last.n]
			for r := range c {
				for j := range 16 {
					var of [2]float32
					for l := range 16 {
						for i, half := range []int{16, 0} {
							x, y := math.Float32frombits(a[r][l]>>half<<16), math.Float32frombits(b[l][j]>>half<<16)
							of[i] = normal(fma(normal(x), normal(y), of[i]))
						}
					}
					c[r].setF(j, normal(normal(c[r].f(j))+normal(of[0]+of[1])))
				}
			}
		}
	case "VCMPPS":
		return func(m *machine) {
			y, x, k := m.bits(ops[1], 16), m.bits(ops[2], 16), uint32(0)
			for i := range 16 {
				if compare(ops[0].value, x.f(i), y.f(i)) {
					k |= 1 << i
				}
			}
			m.k[last.n] = k
		}
	case "VBLENDMPS":
		lanes := last.lanes()
		return func(m *machine) {
			yes, v := m.bits(ops[0], lanes), m.bits(ops[1], lanes)
			for i := range lanes {
				if m.k[ops[2].n]>>i&1 != 0 {
					v[i] = yes[i]
				}
			}
			m.put(last, v, lanes)
		}
	case "VPTERNLOGD":
		lanes, table := last.lanes(), ops[0].value
		return func(m *machine) {
			y, x, v := m.bits(ops[1], lanes), m.bits(ops[2], lanes), m.v[last.n]
			for i := range lanes {
				var r uint32
				for b := range 32 {
					r |= uint32(table>>(v[i]>>b&1<<2|x[i]>>b&1<<1|y[i]>>b&1)&1) << b
				}
				v[i] = r
			}
			m.put(last, v, lanes)
		}
	case "VPSLLD", "VPSRLD", "VPSRAD":
		lanes, n := last.lanes(), ops[0].value
		return func(m *machine) {
			v := m.bits(ops[1], lanes)
			for i := range lanes {
				switch op {
				case "VPSLLD":
					v[i] <<= n
				case "VPSRLD":
					v[i] >>= n
				default:
					v[i] = uint32(int32(v[i]) >> n)
				}
			}
			m.put(last, v, lanes)
		}
	case "VPROLD":
		lanes, n := last.lanes(), ops[0].value
		return func(m *machine) {
			v := m.bits(ops[1], lanes)
			for i := range lanes {
				v[i] = bits.RotateLeft32(v[i], n)
			}
			m.put(last, v, lanes)
		}
	case "VCVTNE2PS2BF16":
		return func(m *machine) {
			low, high := m.bits(ops[0], 16), m.bits(ops[1], 16)
			word := func(i int) uint32 {
				x := low.f(i % 16)
				if i >= 16 {
					x = high.f(i % 16)
				}
				return uint32(toBF16(normal(x)))
			}
			var v vreg
			for i := range v {
				v[i] = word(2*i) | word(2*i+1)<<16
			}
			m.put(last, v, 16)
		}
	case "VPERMW":
		return func(m *machine) {
			x, order := m.bits(ops[0], 16), m.bits(ops[1], 16)
			word := func(v *vreg, i int) uint32 { return v[i/2] >> (i % 2 * 16) & 0xffff }
			var v vreg
			for i := range 32 {
				v[i/2] |= word(&x, int(word(&order, i)&31)) << (i % 2 * 16)
			}
			m.put(last, v, 16)
		}
	case "SHRQ":
		return func(m *machine) { *m.gp[last.reg] >>= m.integer(ops[0]) }
	case "VPSRLQ":
		return func(m *machine) {
			v := m.bits(ops[1], 16)
			for i := 0; i < 16; i += 2 {
				q := (uint64(v[i]) | uint64(v[i+1])<<32) >> ops[0].value
				v[i], v[i+1] = uint32(q), uint32(q>>32)
			}
			m.put(last, v, 16)
		}
	case "VPMOVQD":
		return func(m *machine) {
			x, v := m.v[ops[0].n], vreg{}
			for i := range 8 {
				v[i] = x[2*i]
			}
			m.put(last, v, 8)
		}
	case "VEXTRACTF64X4", "VEXTRACTF128":
		lanes := last.lanes()
		return func(m *machine) {
			from, v := m.v[ops[1].n], vreg{}
			copy(v[:lanes], from[ops[0].value*lanes:])
			m.put(last, v, lanes)
		}
	case "VMOVHLPS":
		return func(m *machine) {
			y, x := m.v[ops[0].n], m.v[ops[1].n]
			m.put(last, vreg{y[2], y[3], x[2], x[3]}, 4)
		}
	case "VMOVSHDUP":
		return func(m *machine) {
			x := m.v[ops[0].n]
			m.put(last, vreg{x[1], x[1], x[3], x[3]}, 4)
		}
	case "VCVTSI2SSQ":
		return func(m *machine) {
			v := m.v[ops[1].n]
			v.setF(0, float32(int64(m.integer(ops[0]))))
			m.put(last, v, 4)
		}
	case "VCVTSS2SD":
		return func(m *machine) {
			x, v := m.bits(ops[0], 1), m.v[ops[1].n]
			v.setD(0, float64(x.f(0)))
			m.put(last, v, 4)
		}
	case "VCVTPS2PD":
		return func(m *machine) {
			x, v := m.bits(ops[0], 8), vreg{}
			for i := range 8 {
				v.setD(i, float64(x.f(i)))
			}
			m.put(last, v, 16)
		}
	case "VPMOVZXWD.Z":
		return func(m *machine) {
			var v vreg
			for i := range v {
				if m.k[ops[1].n]>>i&1 != 0 {
					v[i] = uint32(*(*uint16)(unsafe.Add(m.address(ops[0]), 2*i)))
				}
			}
			m.put(last, v, 16)
		}
	case "VPMOVZXWD", "VCVTPH2PS":
		return func(m *machine) {
			var v vreg
			for i := range v {
				h := *(*uint16)(unsafe.Add(m.address(ops[0]), 2*i))
				v[i] = uint32(h)
				if op == "VCVTPH2PS" {
					v.setF(i, fromFP16(h))
				}
			}
			m.put(last, v, 16)
		}
	case "VPMOVDW", "VCVTPS2PH":
		return func(m *machine) {
			v := m.v[ops[len(ops)-2].n]
			for i := range v {
				h := uint16(v[i])
				if op == "VCVTPS2PH" {
					h = toFP16(v.f(i))
				}
				*(*uint16)(unsafe.Add(m.address(last), 2*i)) = h
			}
		}
	}
	panic("simd: the interpreter has no instruction " + op)
}

func floats(f func(x, y float32) float32) func(x, y uint32) uint32 {
	return func(x, y uint32) uint32 {
		return math.Float32bits(f(math.Float32frombits(x), math.Float32frombits(y)))
	}
}

func plus(x, y float32) float32  { return x + y }
func minus(x, y float32) float32 { return x - y }
func times(x, y float32) float32 { return x * y }
func over(x, y float32) float32  { return x / y }

// larger is x only if it is larger: of NaN and of two zeros the instruction returns y.
func larger(x, y float32) float32 {
	if x > y {
		return x
	}
	return y
}

func smaller(x, y float32) float32 {
	if x < y {
		return x
	}
	return y
}

var binary = map[string]func(x, y uint32) uint32{
	"VADDPS": floats(plus), "VSUBPS": floats(minus), "VMULPS": floats(times), "VDIVPS": floats(over),
	"VMAXPS": floats(larger), "VMINPS": floats(smaller),
	"VPXORD": func(x, y uint32) uint32 { return x ^ y },
	"VXORPS": func(x, y uint32) uint32 { return x ^ y },
	"VPORD":  func(x, y uint32) uint32 { return x | y },
	"VPANDD": func(x, y uint32) uint32 { return x & y },
	"VPADDD": func(x, y uint32) uint32 { return x + y }, "VPMAXUD": func(x, y uint32) uint32 { return max(x, y) },
	"VPSUBD": func(x, y uint32) uint32 { return x - y },
}

var scalar = map[string]func(x, y uint32) uint32{
	"VADDSS": floats(plus), "VMULSS": floats(times), "VDIVSS": floats(over), "VMAXSS": floats(larger),
}

var quad = map[string]func(x, y uint64) uint64{
	"VPADDQ": func(x, y uint64) uint64 { return x + y }, "VPSUBQ": func(x, y uint64) uint64 { return x - y },
	"VPMULLQ": func(x, y uint64) uint64 { return x * y },
}

var double = map[string]func(x, y float64) float64{
	"VADDPD": func(x, y float64) float64 { return x + y },
	"VSUBPD": func(x, y float64) float64 { return x - y },
	"VMULPD": func(x, y float64) float64 { return x * y },
}

var doubleScalar = map[string]func(x, y float64) float64{
	"VADDSD": double["VADDPD"], "VSUBSD": double["VSUBPD"], "VMULSD": double["VMULPD"],
}

var unary = map[string]func(x uint32) uint32{
	"VSQRTPS":   func(x uint32) uint32 { return math.Float32bits(sqrt(math.Float32frombits(x))) },
	"VCVTDQ2PS": func(x uint32) uint32 { return math.Float32bits(float32(int32(x))) },
	"VCVTPS2DQ": func(x uint32) uint32 {
		f := math.RoundToEven(float64(math.Float32frombits(x)))
		if !(f >= math.MinInt32 && f <= math.MaxInt32) {
			return 1 << 31
		}
		return uint32(int32(f))
	},
}

var jumps = map[string]func(m *machine) bool{
	"JMP": func(*machine) bool { return true },
	"JZ":  func(m *machine) bool { return m.zf },
	"JNZ": func(m *machine) bool { return !m.zf },
	"JL":  func(m *machine) bool { return m.sf != m.of },
	"JGE": func(m *machine) bool { return m.sf == m.of },
	"JLE": func(m *machine) bool { return m.zf || m.sf != m.of },
	"JCC": func(m *machine) bool { return !m.cf },
}

func compare(predicate int, x, y float32) bool {
	switch predicate {
	case 0x00:
		return x == y
	case 0x03:
		return x != x || y != y
	case 0x04:
		return x != y
	case 0x11:
		return x < y
	case 0x1e:
		return x > y
	}
	panic(fmt.Sprintf("simd: the interpreter has no predicate %#x", predicate))
}

// normal is x, or a zero of its sign where it is too small for a number of full precision.
func normal(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return x
}

// fma is x·y + z rounded once. The product is exact in float64; the sum is rounded there to odd, after which rounding to float32 is
// that of the exact sum (Boldo and Melquiond, 2008).
func fma(x, y, z float32) float32 {
	p, d := float64(x)*float64(y), float64(z)
	s := p + d
	if math.IsNaN(s) || math.IsInf(s, 0) {
		return float32(s)
	}
	b := s - p
	if e := (p - (s - b)) + (d - b); e != 0 && math.Float64bits(s)&1 == 0 {
		if (e > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}
