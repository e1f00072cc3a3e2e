package wire

import (
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// ProtocolVersion is the version of the protocol that this package speaks. Client and server must speak the same.
const ProtocolVersion = 9

// Hello is what a client says about itself when a stream begins.
type Hello struct {
	// Version is ProtocolVersion; [Dial] sets it.
	Version uint32
	// Job is the job's name, Plan the hash of its plan, Layout that of its parameters ([param.Layout.Hash]).
	Job, Plan, Layout string
	// Source names what the client reads, Model the graph, Shape is the hash of what the weights look like.
	Source, Model, Shape string
	// Role is what the client may do.
	Role ps.Role
	// Precision is the format in which rows and gradients travel in this stream.
	Precision param.Precision
	// Shards is how many shards the client thinks there are, 0 where it does not say; Shard which of them it wants, from 0.
	Shards, Shard int
	// Generation is that of the cluster's state that the client has resumed from; the [Host] decides what it means.
	Generation uint64
	// Session names the client. It is the same on all shards and after every reconnect, and no other client's of the job.
	Session uint64
	// Worker names the client in errors and logs.
	Worker string
	// Resumed says that the client has been welcomed in this session before; [Dial] and [Conn] set it.
	Resumed bool
}

// Welcome is the server's answer.
type Welcome struct {
	// Incarnation changes when the shard's process was started again. A client that sees another one repeats its last
	// commits.
	Incarnation uint64
	// MaxMessage is the server's limit of a frame, bytes. A [Host] may leave it 0 for that of [HostOptions].
	MaxMessage int
}

// hello is what travels: Hello and how often the client wants a heartbeat while its call is still being handled.
type hello struct {
	Hello
	alive time.Duration
}

const (
	helloLen = 4 + 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 7*4
	// maxHello bounds a hello, bytes.
	maxHello = 1 << 20
)

func (h *hello) header(attempt uint64) (header, error) {
	if err := checkNames(h.Job, h.Plan, h.Layout, h.Source, h.Model, h.Shape, h.Worker); err != nil {
		return header{}, err
	}
	n := 0
	for _, s := range []string{h.Job, h.Plan, h.Layout, h.Source, h.Model, h.Shape, h.Worker} {
		n += len(s)
	}
	return header{kind: kindHello, seq: attempt, bodyLen: helloLen + uint64(n)}, nil
}

func (h *hello) put(e *encoder) {
	e.u32(h.Version)
	e.u32(uint32(h.Shards))
	e.u32(uint32(h.Shard))
	e.u32(uint32(bit(h.Resumed)))
	e.u32(uint32(h.Role))
	e.u32(uint32(h.Precision))
	e.u64(h.Generation)
	e.u64(h.Session)
	e.u32(uint32(h.alive.Milliseconds()))
	e.str(h.Job)
	e.str(h.Plan)
	e.str(h.Layout)
	e.str(h.Source)
	e.str(h.Model)
	e.str(h.Shape)
	e.str(h.Worker)
}

// read reads a hello's body. The version comes first in every version of the protocol; of another one nothing else is
// read.
func (h *hello) read(d *decoder) error {
	h.Version = d.u32()
	if d.err == nil && h.Version != ProtocolVersion {
		return versionError(h.Version)
	}
	h.Shards, h.Shard, h.Resumed = int(d.u32()), int(d.u32()), d.u32() != 0
	switch role := d.u32(); {
	case d.err == nil && role > uint32(ps.Bench):
		d.err = violation("hello in role %d", role)
	default:
		h.Role = ps.Role(role)
	}
	precision := d.u32()
	if h.Precision = param.Precision(precision); d.err == nil && (precision > math.MaxUint8 || !h.Precision.Valid()) {
		d.err = violation("hello with precision %d", precision)
	}
	h.Generation, h.Session = d.u64(), d.u64()
	h.alive = time.Duration(d.u32()) * time.Millisecond
	h.Job, h.Plan, h.Layout, h.Source, h.Model, h.Shape, h.Worker = d.str(), d.str(), d.str(), d.str(), d.str(), d.str(), d.str()
	return d.end()
}

func versionError(client uint32) error {
	older := "the server is older"
	if client < ProtocolVersion {
		older = "the client is older"
	}
	return fmt.Errorf("wire: the client speaks version %d, the server %d, so %s: run the same release on both sides: %w",
		client, ProtocolVersion, older, ErrVersion)
}

// welcome is what travels: Welcome and what the client's line begins with.
type welcome struct {
	Welcome
	ticket ticket
}

const welcomeLen = 8 + 8 + ticketLen

func (w *welcome) put(e *encoder) {
	e.u64(w.Incarnation)
	e.u64(uint64(w.MaxMessage))
	e.bytes(w.ticket[:])
}

func (w *welcome) read(d *decoder) error {
	w.Incarnation, w.MaxMessage = d.u64(), int(d.u64())
	if d.err == nil && w.MaxMessage < headerLen {
		d.err = violation("welcome with a limit of %d bytes", w.MaxMessage)
	}
	d.read(w.ticket[:])
	return d.end()
}
