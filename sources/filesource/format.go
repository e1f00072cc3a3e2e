package filesource

import (
	"github.com/monolith-go/monolith/internal/filesplit"
)

// Stream is an open file: its bytes, uncompressed. IsGzip reports whether it was compressed; if not, SeekTo moves to a byte.
type Stream = filesplit.Stream

// Records finds the records of an open file: Scan returns the next one, valid until the next call, or io.EOF, or a
// [*BadRecord] with what is known of its bytes; Offset is the byte just after what Scan has last returned.
type Records = filesplit.Scanner

// Placed are [Records] that pass over bytes between records, such as empty lines: Begin is where the record that Scan last
// returned begins.
type Placed = filesplit.Placed

// Lined are [Records] of text: Line is the number, from 1, of the line that the record that Scan last returned begins in,
// counted from where reading began.
type Lined = filesplit.Lined

// BadRecord is the error of a record that cannot be used. One that the file ends within is Unfinished.
type BadRecord = filesplit.BadRecord

// Headed are [Records] of a file that begins with a line which names the columns. Header returns it, or nil; it goes into
// the metadata of the schema of the file's blocks, under [pipeline.MetadataHeader].
type Headed interface {
	Header() []byte
}

// lines is a [Format] of lines of text: messages name the line that a record begins in.
type lines interface{ Lines() }

// Format is a way to write records into a file. Methods may be called from several goroutines. A format of lines of text has a
// method Lines() besides, and messages then name the line that a record begins in.
type Format interface {
	// Name is what the format is called in plans and errors, such as "text": its package is called textsource.
	Name() string
	// IsGzip reports whether a file that begins with these bytes, 16 at most, is compressed.
	IsGzip(head []byte) bool
	// Open begins to read a file, of which nothing has been read. The first record is the one at byte from of a plain file;
	// of a compressed one from is 0, and records are counted by the caller. A [*BadRecord] says that no record of the file
	// can be read; it is an error whatever the policy. Other errors are those of the stream, as the stream gave them.
	Open(s *Stream, from int64) (Records, error)
	// Fingerprint renders every setting that changes what is read, those of the files too ([pipeline.Fingerprint]).
	Fingerprint() string
}
