#include "textflag.h"

// Offsets in probes.
#define P_DIR    0
#define P_SHIFT  8
#define P_SLABS  16
#define P_METAS  24
#define P_STRIDE 32
#define P_KEYS   40
#define P_N      48
#define P_AT     56
#define P_IDS    64
#define P_SPAN   72
#define P_OUT    80
#define P_BYTES  88
#define P_MISSED 96
#define P_APART  104

// DIST is how many keys one stage of lookupRows is ahead of the next, AHEAD how many of resolveRows, whose chunks are short.
#define DIST  48
#define AHEAD 32

// Lines are asked for into the second cache, which has room for 48 that are on their way on an Intel core; the first has room for 16. That they are then a few cycles
// further away costs nothing, since nobody waits for one alone.

// HASH makes the key in AX its hash. It needs the constants of Hash in R8, R9 and R10; it uses BX.
#define HASH \
	INCQ AX                \
	IMULQ R8, AX           \
	MOVQ AX, BX            \
	SHRQ $30, BX           \
	XORQ BX, AX            \
	IMULQ R9, AX           \
	MOVQ AX, BX            \
	SHRQ $27, BX           \
	XORQ BX, AX            \
	IMULQ R10, AX          \
	MOVQ AX, BX            \
	SHRQ $31, BX           \
	XORQ BX, AX

// LINES gets of the segment of the hash in AX the address of its lines into BX, and the logarithm of their number into CX. It needs the directory in
// R11 and its shift in R12.
#define LINES \
	MOVQ AX, BX            \
	SHRQ $1, BX            \
	SHRXQ R12, BX, BX      \
	MOVQ (R11)(BX*8), BX   \
	MOVQ BX, CX            \
	ANDQ $63, CX           \
	XORQ CX, BX

// HOME computes the home line of the key in AX and asks for it: AX becomes its address. It uses BX and CX.
#define HOME \
	HASH                   \
	LINES                  \
	BZHIQ CX, AX, AX       \
	SHLQ $6, AX            \
	ADDQ BX, AX            \
	PREFETCHT1 (AX)

// STRIDE computes from the hash in AX by how many lines a search continues, into DX.
#define STRIDE \
	MOVQ AX, DX            \
	SHRQ $10, DX           \
	ORQ $1, DX

// SECOND asks for the line that a search for the key in AX looks at behind its home line. It uses AX, BX, CX and DX.
#define SECOND \
	HASH                   \
	LINES                  \
	STRIDE                 \
	ADDQ DX, AX            \
	BZHIQ CX, AX, AX       \
	SHLQ $6, AX            \
	PREFETCHT1 (BX)(AX*1)

// MATCH compares the keys of the line at AX with the one at KEY: bit i of BX is set when entry i has it, ZF when none has.
// It uses CX, DX and Y0.
#define MATCH(KEY) \
	VPBROADCASTQ KEY, Y0    \
	VPCMPEQQ (AX), Y0, Y0   \
	VMOVMSKPD Y0, BX        \
	MOVQ KEY, CX            \
	XORL DX, DX             \
	CMPQ CX, 32(AX)         \
	SETEQ DX                \
	SHLL $4, DX             \
	ORL DX, BX              \
	MOVBLZX 60(AX), CX      \
	BZHIL CX, BX, BX

// func lookupRows(p *probes) (misses int)
TEXT ·lookupRows(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ $0x9e3779b97f4a7c15, R8
	MOVQ $0xbf58476d1ce4e5b9, R9
	MOVQ $0x94d049bb133111eb, R10
	MOVQ P_DIR(DI), R11
	MOVQ P_SHIFT(DI), R12
	MOVQ P_KEYS(DI), SI
	MOVQ P_AT(DI), R13
	XORQ R15, R15 // number of the key whose line is asked for
	MOVQ $0, misses+8(FP)

loop:
	CMPQ R15, P_N(DI)
	JGE  probe
	MOVQ (SI)(R15*8), AX
	HOME
	MOVQ AX, (R13)(R15*8)

probe:
	MOVQ R15, R14
	SUBQ $DIST, R14
	JLT  next
	CMPQ R14, P_N(DI)
	JGE  move
	MOVQ (R13)(R14*8), AX
	MATCH((SI)(R14*8))
	JZ   miss
	TZCNTL BX, BX
	MOVL 40(AX)(BX*4), CX
	MOVQ P_IDS(DI), AX
	TESTQ AX, AX
	JZ   row
	MOVL CX, (AX)(R14*4)

row:
	ADDQ $64, CX
	LZCNTL CX, DX
	IMULQ P_STRIDE(DI), CX
	MOVQ P_SLABS(DI), AX
	ADDQ (AX)(DX*8), CX
	MOVQ CX, (R13)(R14*8)
	PREFETCHT1 (CX)
	MOVQ P_SPAN(DI), AX
	CMPQ AX, $4
	JLE  move // a float32 lies in one line
	LEAQ -1(CX)(AX*1), AX
	PREFETCHT1 (AX)

fetch:
	ADDQ $64, CX
	CMPQ CX, AX
	JGT  move
	PREFETCHT1 (CX)
	JMP  fetch

miss:
	MOVQ P_BYTES(DI), CX
	IMULQ R14, CX
	ADDQ P_OUT(DI), CX
	MOVQ CX, (R13)(R14*8)
	MOVQ misses+8(FP), CX
	MOVQ P_MISSED(DI), BX
	MOVW R14, (BX)(CX*2)
	INCQ misses+8(FP)
	MOVQ P_IDS(DI), CX
	TESTQ CX, CX
	JZ   behind
	MOVL $-1, (CX)(R14*4)

behind:
	CMPB 61(AX), $0
	JEQ  move
	MOVQ (SI)(R14*8), AX
	SECOND

move:
	SUBQ $DIST, R14
	JLT  next
	MOVQ P_BYTES(DI), DX
	MOVQ (R13)(R14*8), AX
	MOVQ R14, BX // a pointer that is moved on would end behind the memory, where the garbage collector must find none
	IMULQ DX, BX
	ADDQ P_OUT(DI), BX
	CMPQ DX, $32
	JLT  short
	XORQ CX, CX
	SUBQ $32, DX

copy32:
	VMOVUPS (AX)(CX*1), Y0
	VMOVUPS Y0, (BX)(CX*1)
	ADDQ $32, CX
	CMPQ CX, DX
	JLT  copy32
	VMOVUPS (AX)(DX*1), Y0
	VMOVUPS Y0, (BX)(DX*1)
	JMP  next

short:
	CMPQ DX, $16
	JLT  short8
	VMOVUPS (AX), X0
	VMOVUPS -16(AX)(DX*1), X1
	VMOVUPS X0, (BX)
	VMOVUPS X1, -16(BX)(DX*1)
	JMP  next

short8:
	CMPQ DX, $8
	JLT  short4
	MOVQ (AX), CX
	MOVQ -8(AX)(DX*1), AX
	MOVQ CX, (BX)
	MOVQ AX, -8(BX)(DX*1)
	JMP  next

short4:
	MOVL (AX), CX
	MOVL CX, (BX)

next:
	INCQ R15
	MOVQ P_N(DI), AX
	ADDQ $(2*DIST), AX
	CMPQ R15, AX
	JLT  loop
	VZEROUPPER
	MOVQ misses+8(FP), CX
	MOVQ P_MISSED(DI), BX

absent:
	DECQ CX
	JLT  done
	MOVWLZX (BX)(CX*2), AX
	MOVQ $0, (R13)(AX*8)
	JMP  absent

done:
	RET

// func copyRows(p *probes, which *uint16, n int)
TEXT ·copyRows(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), DI
	MOVQ which+8(FP), SI
	MOVQ n+16(FP), R15
	MOVQ P_AT(DI), R13

row:
	MOVWLZX (SI), R14
	MOVQ P_BYTES(DI), DX
	MOVQ (R13)(R14*8), AX
	TESTQ AX, AX
	JZ   next
	MOVQ R14, BX
	IMULQ DX, BX
	ADDQ P_OUT(DI), BX
	CMPQ DX, $32
	JLT  short
	XORQ CX, CX
	SUBQ $32, DX

copy32:
	VMOVUPS (AX)(CX*1), Y0
	VMOVUPS Y0, (BX)(CX*1)
	ADDQ $32, CX
	CMPQ CX, DX
	JLT  copy32
	VMOVUPS (AX)(DX*1), Y0
	VMOVUPS Y0, (BX)(DX*1)
	JMP  next

short:
	CMPQ DX, $16
	JLT  short8
	VMOVUPS (AX), X0
	VMOVUPS -16(AX)(DX*1), X1
	VMOVUPS X0, (BX)
	VMOVUPS X1, -16(BX)(DX*1)
	JMP  next

short8:
	CMPQ DX, $8
	JLT  short4
	MOVQ (AX), CX
	MOVQ -8(AX)(DX*1), AX
	MOVQ CX, (BX)
	MOVQ AX, -8(BX)(DX*1)
	JMP  next

short4:
	MOVL (AX), CX
	MOVL CX, (BX)

next:
	ADDQ $2, SI
	DECQ R15
	JNZ  row
	VZEROUPPER
	RET

// func resolveRows(p *probes) (misses int)
TEXT ·resolveRows(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ $0x9e3779b97f4a7c15, R8
	MOVQ $0xbf58476d1ce4e5b9, R9
	MOVQ $0x94d049bb133111eb, R10
	MOVQ P_DIR(DI), R11
	MOVQ P_SHIFT(DI), R12
	MOVQ P_KEYS(DI), SI
	MOVQ P_AT(DI), R13
	XORQ R15, R15
	MOVQ $0, misses+8(FP)

loop:
	CMPQ R15, P_N(DI)
	JGE  probe
	MOVQ (SI)(R15*8), AX
	HOME
	MOVQ AX, (R13)(R15*8)

probe:
	MOVQ R15, R14
	SUBQ $AHEAD, R14
	JLT  next
	MOVQ (R13)(R14*8), AX
	MATCH((SI)(R14*8))
	JZ   miss
	TZCNTL BX, BX
	MOVL 40(AX)(BX*4), CX
	MOVQ P_IDS(DI), AX
	MOVL CX, (AX)(R14*4)
	ADDQ $64, CX
	LZCNTL CX, DX
	MOVQ P_APART(DI), BX
	IMULQ CX, BX
	MOVQ P_METAS(DI), AX
	ADDQ (AX)(DX*8), BX
	PREFETCHT1 (BX)
	IMULQ P_STRIDE(DI), CX
	MOVQ P_SLABS(DI), AX
	ADDQ (AX)(DX*8), CX
	MOVQ CX, (R13)(R14*8)
	MOVQ P_SPAN(DI), AX
	LEAQ -1(CX)(AX*1), AX
	PREFETCHT1 (AX)

fetch:
	PREFETCHT1 (CX)
	ADDQ $64, CX
	CMPQ CX, AX
	JLE  fetch
	JMP  next

miss:
	MOVQ $0, (R13)(R14*8)
	MOVQ misses+8(FP), CX
	MOVQ P_MISSED(DI), BX
	MOVW R14, (BX)(CX*2)
	INCQ misses+8(FP)
	MOVQ P_IDS(DI), CX
	MOVL $-1, (CX)(R14*4)
	CMPB 61(AX), $0
	JEQ  next
	MOVQ (SI)(R14*8), AX
	SECOND

next:
	INCQ R15
	MOVQ P_N(DI), AX
	ADDQ $AHEAD, AX
	CMPQ R15, AX
	JLT  loop
	VZEROUPPER
	RET

// func resolveRest(p *probes, from *uint16, n int, to *uint16, step int) (left int)
TEXT ·resolveRest(SB), NOSPLIT, $16-48
	MOVQ p+0(FP), DI
	MOVQ $0x9e3779b97f4a7c15, R8
	MOVQ $0xbf58476d1ce4e5b9, R9
	MOVQ $0x94d049bb133111eb, R10
	MOVQ P_DIR(DI), R11
	MOVQ P_SHIFT(DI), R12
	MOVQ from+8(FP), SI
	MOVQ to+24(FP), R15
	MOVQ P_KEYS(DI), R13

key:
	MOVWLZX (SI), R14
	MOVQ (R13)(R14*8), AX
	HASH
	LINES
	STRIDE
	MOVQ BX, lines-8(SP)
	MOVQ step+32(FP), BX
	DECQ BX
	IMULQ DX, BX
	ADDQ BX, AX
	BZHIQ CX, AX, BX
	SHLQ $6, BX
	ADDQ lines-8(SP), BX
	CMPB 61(BX), $0
	JEQ  next // no search continues from there
	ADDQ DX, AX
	ADDQ AX, DX
	BZHIQ CX, DX, DX
	SHLQ $6, DX
	ADDQ lines-8(SP), DX
	MOVQ DX, following-16(SP)
	BZHIQ CX, AX, AX
	SHLQ $6, AX
	ADDQ lines-8(SP), AX
	MATCH((R13)(R14*8))
	JZ   behind
	TZCNTL BX, BX
	MOVL 40(AX)(BX*4), CX
	MOVL CX, BX
	ADDQ $64, CX
	LZCNTL CX, DX
	MOVQ P_IDS(DI), AX
	TESTQ AX, AX
	JZ   row
	MOVL BX, (AX)(R14*4)
	MOVQ P_APART(DI), BX
	IMULQ CX, BX
	MOVQ P_METAS(DI), AX
	ADDQ (AX)(DX*8), BX
	PREFETCHT1 (BX)

row:
	IMULQ P_STRIDE(DI), CX
	MOVQ P_SLABS(DI), AX
	ADDQ (AX)(DX*8), CX
	MOVQ P_AT(DI), BX
	MOVQ CX, (BX)(R14*8)
	MOVQ P_SPAN(DI), AX
	LEAQ -1(CX)(AX*1), AX
	PREFETCHT1 (AX)

fetch:
	PREFETCHT1 (CX)
	ADDQ $64, CX
	CMPQ CX, AX
	JLE  fetch
	JMP  next

behind:
	MOVQ following-16(SP), AX
	PREFETCHT1 (AX)
	MOVW R14, (R15)
	ADDQ $2, R15

next:
	ADDQ $2, SI
	DECQ n+16(FP)
	JNZ  key
	SUBQ to+24(FP), R15
	SHRQ $1, R15
	MOVQ R15, left+40(FP)
	VZEROUPPER
	RET

// func placeRows(p *probes) (absent int)
TEXT ·placeRows(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ P_N(DI), R8
	MOVQ P_IDS(DI), SI
	MOVQ P_AT(DI), R13
	MOVQ P_MISSED(DI), R9
	MOVQ P_SLABS(DI), R10
	MOVQ P_METAS(DI), R11
	MOVQ P_STRIDE(DI), R12
	MOVQ P_SPAN(DI), R15
	XORQ R14, R14
	XORQ BX, BX

loop:
	CMPQ BX, R8
	JGE  done
	MOVL (SI)(BX*4), CX
	CMPL CX, $-1
	JEQ  none
	ADDQ $64, CX
	LZCNTL CX, DX
	TESTQ R11, R11
	JZ   row
	MOVQ P_APART(DI), AX
	IMULQ CX, AX
	ADDQ (R11)(DX*8), AX
	PREFETCHT1 (AX)

row:
	IMULQ R12, CX
	ADDQ (R10)(DX*8), CX
	MOVQ CX, (R13)(BX*8)
	LEAQ -1(CX)(R15*1), AX
	PREFETCHT1 (AX)

fetch:
	PREFETCHT1 (CX)
	ADDQ $64, CX
	CMPQ CX, AX
	JLE  fetch
	INCQ BX
	JMP  loop

none:
	MOVW BX, (R9)(R14*2)
	INCQ R14
	INCQ BX
	JMP  loop

done:
	MOVQ R14, absent+8(FP)
	RET

// func fetchRows(at *uintptr, n int, span uintptr)
TEXT ·fetchRows(SB), NOSPLIT, $0-24
	MOVQ at+0(FP), SI
	MOVQ n+8(FP), DX
	MOVQ span+16(FP), BX

row:
	MOVQ (SI), CX
	LEAQ -1(CX)(BX*1), AX
	PREFETCHT1 (AX)

fetch:
	PREFETCHT1 (CX)
	ADDQ $64, CX
	CMPQ CX, AX
	JLE  fetch
	ADDQ $8, SI
	DECQ DX
	JNZ  row
	RET

// func countRows(metas *[32]uintptr, apart uintptr, ids *uint32, counts *uint32, n int, time int64)
TEXT ·countRows(SB), NOSPLIT, $0-48
	MOVQ metas+0(FP), DI
	MOVQ apart+8(FP), R12
	MOVQ ids+16(FP), SI
	MOVQ counts+24(FP), R8
	MOVQ n+32(FP), R9
	MOVQ time+40(FP), R10
	XORQ R11, R11

loop:
	CMPQ R11, R9
	JGE  done
	MOVL (SI)(R11*4), AX
	ADDQ $64, AX
	LZCNTL AX, BX
	IMULQ R12, AX
	ADDQ (DI)(BX*8), AX
	MOVQ (AX), BX
	CMPQ BX, R10
	CMOVQLT R10, BX
	MOVQ BX, (AX)
	MOVL (R8)(R11*4), CX
	ADDQ CX, 8(AX)
	INCQ R11
	JMP  loop

done:
	RET

// func countNarrow(at *uintptr, meta uintptr, counts *uint32, n int, time int64)
TEXT ·countNarrow(SB), NOSPLIT, $0-40
	MOVQ at+0(FP), SI
	MOVQ meta+8(FP), DI
	MOVQ counts+16(FP), R8
	MOVQ n+24(FP), R9
	MOVQ time+32(FP), R10
	XORQ R11, R11

loop:
	CMPQ R11, R9
	JGE  done
	MOVQ (SI)(R11*8), AX
	MOVL (R8)(R11*4), CX
	MOVQ (AX)(DI*1), BX
	ADDQ CX, 8(AX)(DI*1)
	CMPQ BX, R10
	CMOVQLT R10, BX
	MOVQ BX, (AX)(DI*1)
	INCQ R11
	JMP  loop

done:
	RET
