// Package filesource reads files of records: what all formats of files share. It lists files as splits and knows them again
// by what they hold ([Options].Known), reads plain and gzip files, counts positions, makes blocks, and gives bad records to
// the job's policy. A format says how records lie in bytes and nothing else:
//
//	file ── Stream (uncompressed bytes) ──> Format ── records, bad records ──> blocks with positions
//
// A new format is a [Format]; the example has one of 20 lines.
package filesource
