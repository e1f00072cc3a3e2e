package wire

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// chunkSize is the largest gRPC message that a frame is cut into, bytes. Above 512 KiB, TCP over loopback and the caches
// make every byte dearer; far below it, the cost of a message does.
const chunkSize = 256 << 10

// message is one gRPC message: out is sent, in has arrived.
type message struct {
	out mem.BufferSlice
	in  mem.BufferSlice
}

// rawCodec hands buffers through, neither copied nor parsed. Messages of other services on the same server go to
// protobuf.
type rawCodec struct{ proto encoding.CodecV2 }

var _ encoding.CodecV2 = rawCodec{}

func newCodec() rawCodec { return rawCodec{encoding.GetCodecV2(proto.Name)} }

// Name implements [encoding.CodecV2].
func (rawCodec) Name() string { return "monolith" }

// Marshal implements [encoding.CodecV2]. gRPC frees what it gets once it is written.
func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return c.proto.Marshal(v)
	}
	return m.out, nil
}

// Unmarshal implements [encoding.CodecV2]. It keeps the buffers, which belong to the transport until they are freed.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		if err := c.proto.Unmarshal(data, v); err != nil {
			return fmt.Errorf("wire: %w", err)
		}
		return nil
	}
	m.in = append(m.in[:0], data...)
	m.in.Ref()
	return nil
}

// bufferPool keeps buffers of some sizes: those that frames are encoded to, and those that gRPC reads into. A buffer comes
// back when gRPC has written it, or when the decoder has read it. gRPC's own pool fills buffers with zeros before
// it reads into them, which here is a twentieth of a call.
type bufferPool struct{ tiers [len(tierSize)]sync.Pool }

var _ mem.BufferPool = (*bufferPool)(nil)

// tierSize are the sizes: a small frame, one of HTTP/2, one that gRPC may read at once, a chunk. gRPC does not give back what is
// 1 KiB or less.
var tierSize = [...]int{4 << 10, 16 << 10, 32 << 10, chunkSize, maxGRPCMessage}

// Get implements [mem.BufferPool]. The contents are arbitrary.
func (p *bufferPool) Get(n int) *[]byte {
	for tier, size := range tierSize {
		if n > size {
			continue
		}
		b, ok := p.tiers[tier].Get().(*[]byte)
		if !ok {
			fresh := make([]byte, size)
			b = &fresh
		}
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n)
	return &b
}

// Put implements [mem.BufferPool].
func (p *bufferPool) Put(b *[]byte) {
	for tier, size := range tierSize {
		if cap(*b) == size {
			*b = (*b)[:size]
			p.tiers[tier].Put(b)
			return // it may be another's already
		}
	}
}
