// Package filesink writes batches to files in a folder, each row exactly once: what all formats of files share. A format says
// how rows become bytes, and nothing else ([Format]); package jsonlsink has one of 150 lines.
//
//	batches of split a ─> .kafka~a~…0500.x-1.tmp ─ sync, link ─> kafka~a~00000000000000000500.x
//	batches of split b ─> .kafka~b~…0000.x-2.tmp                 kafka~b~00000000000000000000.x
//	                      (not seen yet)                         (complete; never changed again)
//
// A file holds rows of one split, is named by the source, the split and the position that its rows begin at, and has in its
// metadata the positions [from, to) that it covers. It is visible only when it is complete and synced. So what is visible
// of a split is a chain of files, and its end is where writing continues ([Writer.Resume]), whatever was killed when.
//
// # What is promised
//
//   - Each position of a split lies in at most one visible file, however many processes write to the folder at a time: the
//     next file of a split has one name, and a name is given once (fsx.Exclusive). The second writer gets
//     [pipeline.ErrFenced], and nothing of what it wrote becomes visible.
//   - What an earlier owner of a split has begun when Resume is called never becomes visible. An owner that does not know yet
//     that it is one no more may begin another file afterwards and be the first to finish it; then it is the newer owner that
//     gets ErrFenced, and must resume again. Nothing is lost or written twice either way.
//   - This holds where all writers see one folder, on a file system with hard links and exclusive creation: local ones and
//     NFS have them. Files that were moved away or deleted are not missed as long as the last one of each split is there.
//
// A range of positions without rows (all were dropped, or held out) belongs to the file around it or, where a Flush finds none, to
// a file without rows: otherwise a split that has none would be read again by every run. A crash before that Flush has the range read again, which writes nothing twice.
package filesink
