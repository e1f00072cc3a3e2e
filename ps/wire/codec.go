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

// chunkPool keeps the buffers that frames are encoded to, of three sizes. A buffer comes back when gRPC has written it.
type chunkPool struct{ tiers [3]sync.Pool }

var _ mem.BufferPool = (*chunkPool)(nil)

// tierSize are the sizes. gRPC does not give back what is 1 KiB or less.
var tierSize = [3]int{4 << 10, 32 << 10, chunkSize}

// Get implements [mem.BufferPool] for up to chunkSize bytes. The contents are arbitrary.
func (p *chunkPool) Get(n int) *[]byte {
	tier := 0
	for tier < len(tierSize)-1 && n > tierSize[tier] {
		tier++
	}
	b, ok := p.tiers[tier].Get().(*[]byte)
	if !ok {
		fresh := make([]byte, tierSize[tier])
		b = &fresh
	}
	*b = (*b)[:n]
	return b
}

// Put implements [mem.BufferPool].
func (p *chunkPool) Put(b *[]byte) {
	for tier, size := range tierSize {
		if cap(*b) == size {
			*b = (*b)[:size]
			p.tiers[tier].Put(b)
			return // it may be another's already
		}
	}
}
