#include "textflag.h"

// func scanFids(fids *int64, n int, shift uint64, dst *int32) (low, high int64)
TEXT ·scanFids(SB), NOSPLIT, $0-48
	MOVQ fids+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ dst+24(FP), DI
	MOVQ shift+16(FP), AX
	MOVQ AX, X7
	MOVQ $0x9e3779b97f4a7c15, AX
	MOVQ AX, X6
	VPBROADCASTQ X6, Y6 // golden
	VPSRLQ $32, Y6, Y5  // its upper half
	VMOVDQU (SI), Y8    // least
	VMOVDQA Y8, Y9      // greatest

loop:
	VMOVDQU (SI), Y0
	VPCMPGTQ Y0, Y8, Y1
	VBLENDVPD Y1, Y0, Y8, Y8
	VPCMPGTQ Y9, Y0, Y1
	VBLENDVPD Y1, Y0, Y9, Y9
	VPSRLQ $32, Y0, Y1
	VPXOR Y1, Y0, Y0    // the upper half of it is Y1
	VPMULUDQ Y6, Y1, Y1
	VPMULUDQ Y5, Y0, Y2
	VPADDQ Y2, Y1, Y1
	VPSLLQ $32, Y1, Y1
	VPMULUDQ Y6, Y0, Y0
	VPADDQ Y1, Y0, Y0
	VPSRLQ X7, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VSHUFPS $0x88, X1, X0, X0
	VMOVUPS X0, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	SUBQ $4, CX
	JG   loop
	VEXTRACTI128 $1, Y8, X0
	VPCMPGTQ X0, X8, X1
	VBLENDVPD X1, X0, X8, X8
	VPSHUFD $0x4e, X8, X0
	VPCMPGTQ X0, X8, X1
	VBLENDVPD X1, X0, X8, X8
	VMOVQ X8, low+32(FP)
	VEXTRACTI128 $1, Y9, X0
	VPCMPGTQ X9, X0, X1
	VBLENDVPD X1, X0, X9, X9
	VPSHUFD $0x4e, X9, X0
	VPCMPGTQ X9, X0, X1
	VBLENDVPD X1, X0, X9, X9
	VMOVQ X9, high+40(FP)
	VZEROUPPER
	RET

// func scanFids512(fids *int64, n int, shift uint64, dst *int32) (low, high int64)
TEXT ·scanFids512(SB), NOSPLIT, $0-48
	MOVQ fids+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ dst+24(FP), DI
	MOVQ shift+16(FP), AX
	MOVQ AX, X7
	MOVQ $0x9e3779b97f4a7c15, AX
	VPBROADCASTQ AX, Z6
	VMOVDQU64 (SI), Z8   // least
	VMOVDQA64 Z8, Z9     // greatest

loop:
	VMOVDQU64 (SI), Z0
	VPMINSQ Z0, Z8, Z8
	VPMAXSQ Z0, Z9, Z9
	VPSRLQ $32, Z0, Z1
	VPXORQ Z1, Z0, Z0
	VPMULLQ Z6, Z0, Z0
	VPSRLQ X7, Z0, Z0
	VPMOVQD Z0, Y0
	VMOVDQU Y0, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JG   loop
	VEXTRACTI64X4 $1, Z8, Y0
	VPMINSQ Y0, Y8, Y8
	VEXTRACTI128 $1, Y8, X0
	VPMINSQ X0, X8, X8
	VPSHUFD $0x4e, X8, X0
	VPMINSQ X0, X8, X8
	VMOVQ X8, low+32(FP)
	VEXTRACTI64X4 $1, Z9, Y0
	VPMAXSQ Y0, Y9, Y9
	VEXTRACTI128 $1, Y9, X0
	VPMAXSQ X0, X9, X9
	VPSHUFD $0x4e, X9, X0
	VPMAXSQ X0, X9, X9
	VMOVQ X9, high+40(FP)
	VZEROUPPER
	RET

// func enterFirsts(at *int32, n int, firsts *[1 << 16]uint16)
TEXT ·enterFirsts(SB), NOSPLIT, $0-24
	MOVQ at+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ firsts+16(FP), DI

four:
	SUBQ $4, CX
	JLT  rest
	MOVWLZX 12(SI)(CX*4), AX
	MOVWLZX 8(SI)(CX*4), BX
	MOVWLZX 4(SI)(CX*4), DX
	MOVWLZX (SI)(CX*4), R8
	LEAQ 3(CX), R9
	MOVW R9, (DI)(AX*2)
	LEAQ 2(CX), R9
	MOVW R9, (DI)(BX*2)
	LEAQ 1(CX), R9
	MOVW R9, (DI)(DX*2)
	MOVW CX, (DI)(R8*2)
	JMP  four

rest:
	ADDQ $4, CX

loop:
	DECQ CX
	JLT  done
	MOVWLZX (SI)(CX*4), AX
	MOVW CX, (DI)(AX*2)
	JMP  loop

done:
	RET

// func numberFids(p *numbering)
TEXT ·numberFids(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	MOVQ 0(AX), SI
	MOVQ 8(AX), R11
	MOVQ 24(AX), DI
	MOVQ 48(AX), R9
	MOVQ 72(AX), R10
	MOVQ 96(AX), R8
	MOVQ 104(AX), BX
	MOVQ 112(AX), CX

loop:
	CMPQ BX, R11
	JGE  done
	MOVWLZX (DI)(BX*4), DX
	MOVQ (SI)(BX*8), R12
	MOVWLZX (R8)(DX*2), DX // the first row that hashes so
	CMPQ R12, (SI)(DX*8)
	JNE  done
	MOVQ R12, (R9)(CX*8)
	MOVL (DI)(DX*4), R13
	CMPQ DX, BX
	CMOVQEQ CX, R13
	SBBQ $-1, CX // one more where DX is BX: it is never larger
	MOVL R13, (DI)(BX*4)
	INCL (R10)(R13*4)
	INCQ BX
	JMP  loop

done:
	MOVQ BX, 104(AX)
	MOVQ CX, 112(AX)
	RET
