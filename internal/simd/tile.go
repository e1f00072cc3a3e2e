package simd

import "unsafe"

// The flags of a tile.
const (
	flagAdd  = 1 // to what C holds
	flagBias = 2
	flagRelu = 4
)

// tileFunc computes a tile of C: kc products of x, whose rows are rs and columns cs bytes apart, and of a packed panel; see
// the assembly. The rows of C are ldc bytes apart.
type tileFunc func(kc int, x *float32, rs, cs int, b, c *float32, ldc, flags int, bias *float32)

var tilesAVX2 = [...][2]tileFunc{
	1: {tile1x8AVX2, tile1x16AVX2},
	2: {tile2x8AVX2, tile2x16AVX2},
	3: {tile3x8AVX2, tile3x16AVX2},
	4: {tile4x8AVX2, tile4x16AVX2},
	5: {tile5x8AVX2, tile5x16AVX2},
	6: {tile6x8AVX2, tile6x16AVX2},
}

var tilesAVX512 = [...][2]tileFunc{
	1:  {tile1x16AVX512, tile1x32AVX512},
	2:  {tile2x16AVX512, tile2x32AVX512},
	4:  {tile4x16AVX512, tile4x32AVX512},
	8:  {tile8x16AVX512, tile8x32AVX512},
	14: {tile14x16AVX512, tile14x32AVX512},
}

var tilesPairs = [...][2]tileFunc{
	1:  {tile1x16AVX512BF16, tile1x32AVX512BF16},
	2:  {tile2x16AVX512BF16, tile2x32AVX512BF16},
	4:  {tile4x16AVX512BF16, tile4x32AVX512BF16},
	8:  {tile8x16AVX512BF16, tile8x32AVX512BF16},
	14: {tile14x16AVX512BF16, tile14x32AVX512BF16},
}

// tileRows is the number of rows of the next tile when rows are left.
func tileRows(f Family, rows int) int {
	switch f {
	case AVX512:
		for _, t := range [...]int{14, 8, 4, 2} {
			if rows >= t {
				return t
			}
		}
		return 1
	case AVX2:
		return min(rows, 6)
	default:
		return min(rows, 2)
	}
}

// tileOf is the kernel for a tile, and its width, which may be more than columns.
func tileOf(f Family, rows, columns int) (tileFunc, int) {
	switch f {
	case AVX512:
		if columns <= 16 {
			return tilesAVX512[rows][0], 16
		}
		return tilesAVX512[rows][1], 32
	case AVX2:
		if columns <= 8 {
			return tilesAVX2[rows][0], 8
		}
		return tilesAVX2[rows][1], 16
	default:
		if rows == 1 {
			return tile1x4, 4
		}
		return tile2x4, 4
	}
}

// packRows copies rows of B into panels nr wide, without the transposition of anything.
func packRows(f Family, rows, panels, nr int, src []float32, ldb int, dst []float32) {
	if rows == 0 {
		return
	}
	_, _ = src[(rows-1)*ldb+panels*nr-1], dst[rows*panels*nr-1]
	switch f {
	case AVX512:
		packRowsAVX512(rows, panels, &src[0], 4*ldb, &dst[0], 4*nr*rows)
	case AVX2:
		packRowsAVX2(rows, panels, &src[0], 4*ldb, &dst[0], 4*nr*rows)
	default:
		for p := range panels {
			for r := range rows {
				copy(dst[(p*rows+r)*nr:][:nr], src[r*ldb+p*nr:])
			}
		}
	}
}

// packTransposed makes a panel nr wide of w rows of a transposed B, each of kc floats.
func packTransposed(f Family, kc, w, nr int, src []float32, ldb int, dst []float32) {
	if kc == 0 {
		return
	}
	c := 0
	if f != Portable {
		for ; c+8 <= w; c += 8 {
			_, _ = src[(c+7)*ldb+kc-1], dst[(kc-1)*nr+c+7]
			transpose8AVX2(kc, &src[c*ldb], 4*ldb, &dst[c], 4*nr)
		}
	}
	for ; c < w; c++ {
		at := c
		for _, v := range src[c*ldb:][:kc] {
			dst[at] = v
			at += nr
		}
	}
	for ; c < nr; c++ {
		for r := range kc {
			dst[r*nr+c] = 0
		}
	}
}

// packColumns copies w columns of kc rows of a transposed A to rows of w without gaps.
func packColumns(f Family, kc, w int, src []float32, lda int, dst []float32) {
	_, _ = src[(kc-1)*lda+w-1], dst[kc*w-1]
	from := 0
	switch {
	case f == AVX2 && w == 6:
		packColumns6AVX2(kc, &src[0], 4*lda, &dst[0])
		from = kc - 1
	case f == AVX512 && w == 14:
		packColumns14AVX512(kc, &src[0], 4*lda, &dst[0])
		from = kc - 1
	}
	for r := from; r < kc; r++ {
		copy(dst[r*w:][:w], src[r*lda:])
	}
}

// offset is the float at bytes past p.
func offset(p *float32, bytes int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(p), bytes)) }

// finish ends one element of a portable tile.
func finish(sum, c float32, flags int, bias *float32, column int) float32 {
	if flags&flagAdd != 0 {
		sum += c
	}
	if flags&flagBias != 0 {
		sum += *offset(bias, 4*column)
	}
	if flags&flagRelu != 0 {
		sum = max(sum, 0)
	}
	return sum
}

// tile2x4 is the portable tile. Eight sums, four columns and two rows fit the registers of most processors. The conversions
// keep compilers from fusing products and sums, which would differ from processor to processor.
func tile2x4(kc int, x *float32, rs, cs int, b, c *float32, ldc, flags int, bias *float32) {
	var s00, s01, s02, s03, s10, s11, s12, s13 float32
	for l := range kc {
		x0, x1, row := *offset(x, l*cs), *offset(x, l*cs+rs), (*[4]float32)(unsafe.Pointer(offset(b, 16*l)))
		b0, b1, b2, b3 := row[0], row[1], row[2], row[3]
		s00 += float32(x0 * b0)
		s01 += float32(x0 * b1)
		s02 += float32(x0 * b2)
		s03 += float32(x0 * b3)
		s10 += float32(x1 * b0)
		s11 += float32(x1 * b1)
		s12 += float32(x1 * b2)
		s13 += float32(x1 * b3)
	}
	for r, s := range [2][4]float32{{s00, s01, s02, s03}, {s10, s11, s12, s13}} {
		row := (*[4]float32)(unsafe.Pointer(offset(c, r*ldc)))
		for j := range row {
			row[j] = finish(s[j], row[j], flags, bias, j)
		}
	}
}

func tile1x4(kc int, x *float32, _, cs int, b, c *float32, _, flags int, bias *float32) {
	var s [4]float32
	for l := range kc {
		v, row := *offset(x, l*cs), (*[4]float32)(unsafe.Pointer(offset(b, 16*l)))
		for j := range s {
			s[j] += float32(v * row[j])
		}
	}
	row := (*[4]float32)(unsafe.Pointer(c))
	for j := range row {
		row[j] = finish(s[j], row[j], flags, bias, j)
	}
}
