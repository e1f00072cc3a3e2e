package serving

import (
	"io"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// room is what requests may have together, in bytes as they came: each may be as large as [Options].MaxBytes, and what is made of one is several times that, so that
// a few at a time would otherwise be more than the machine has. Its methods may overlap.
type room struct {
	limit int64 // 0: there is none
	share int64 // what each may have, also when there is no room: what there is for each if there are as many as may be
	taken atomic.Int64
}

// guest is a request in the room, until it leaves with its answer. It is not for concurrent use.
type guest struct {
	of    *room
	bytes int64
}

// take counts bytes that have come, or that are to come. A request that is there alone may have any number: it has other limits. Errors: RESOURCE_EXHAUSTED.
func (g *guest) take(n int64) error {
	if all := g.of.taken.Add(n); g.of.limit > 0 && all > g.of.limit && all > g.bytes+n && g.bytes+n > g.of.share {
		g.of.taken.Add(-n)
		return status.Errorf(codes.ResourceExhausted, "requests of %d bytes are being answered already, and %d more are more than the %d that there is memory for; try again later, with smaller requests, or with another replica",
			all-g.bytes-n, g.bytes+n, g.of.limit)
	}
	g.bytes += n
	return nil
}

// leave gives the room back.
func (g *guest) leave() {
	g.of.taken.Add(-g.bytes)
	g.bytes = 0
}

// reading counts what is read of a request.
func (g *guest) reading(r io.Reader) io.Reader { return &guestReader{g, r} }

type guestReader struct {
	g *guest
	r io.Reader
}

// Read implements [io.Reader].
func (r *guestReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if full := r.g.take(int64(n)); full != nil {
		return 0, full
	}
	return n, err
}
