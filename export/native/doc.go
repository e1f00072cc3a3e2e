// Package native keeps a model in a folder that is opened at once, whatever its size: rows are mapped into memory with their index, so that
// nothing is built or read ahead.
//
//	DIR/manifest.json     written last: the model (package export), and each file with its size, its checksum and the hashes of its first and last row
//	DIR/dense.f32         the dense weights, float32, in the order of the layout
//	DIR/TABLE/*.slab      the rows of a table, of one range of hashes each
//
// A slab is written from its beginning to its end. Numbers are little endian:
//
//	┌ "monoslab", 56 zero bytes                                                       ┐
//	├ weights    [rows, dim] float32, in the order of table.Hash of the ids           ┤
//	├ ids        [rows] int64, after padding to 8 bytes                               ┤
//	├ directory  [parts+1] uint32: how many ids lie in the parts before each          ┤
//	├ footer     JSON: rows, dim, first and last hash, shift, checksum of all before it ┤
//	└ length of the footer, its CRC-32C, uint32 each, "monoslab"                      ┘
//
// The parts are equal ranges of hashes: an id lies in part (hash - first) >> shift, with about six others, which are compared one by one. Hashes are spread evenly,
// and where somebody has chosen ids that are not, a part is searched by halves. So a lookup touches two cache lines of the index and the row.
//
// All checksums are CRC-32C (Castagnoli; RFC 3720, appendix B.4): that of the manifest, of its own fields, and of dense weights and footers is compared when an export is
// opened, that of rows by [Export.Verify]. A flipped bit there gives a wrong number, or an id that is not found, or [ErrCorrupt], never a look outside of the file.
package native
