// Package wire carries a client's stream to a shard in another process: [Conn] is a [ps.Conn] whose other end is there, and
// [RegisterServer] hands what arrives to the ps.Conn of a [Host].
//
// A session has, to each shard, one stream at a time: a bidirectional gRPC stream, of service monolith.ps.v1.Stream, method Session, and its line,
// a connection of its own to the same address. gRPC lets the client in, carries hello and welcome, and says why a stream ends; everything else goes
// on the line, for a fraction of the processor time (docs/decisions/20261126-rows-on-lines.md). Both end together.
// Calls are made one after another in a stream, so it keeps the order that ps.Conn promises. A stream that breaks is replaced,
// and the call under way is sent again: calls change nothing when they are repeated. The server lets streams of one session
// follow each other without overlap.
//
// # Lines
//
// A client opens the line when it is welcomed, with the TLS that gRPC has there, if any (ALPN monolith-ps), and begins it with
//
//	"MPSL" │ ticket, the 32 bytes of the welcome
//
// by which the server, whose listener takes gRPC's connections too, knows it and the stream that it belongs to. A ticket is random and good for one line; a line of no
// stream that waits for one is closed, and so is a stream without a line after 5 s.
//
// # Frames
//
// Everything is little endian. A frame is a header, controls and a body:
//
//	 0      4      5       6     8         16       20       24         32       32+ctl      32+ctl+body
//	┌──────┬──────┬───────┬─────┬─────────┬────────┬────────┬──────────┬──────────┬───────────┐
//	│ MPS1 │ kind │ flags │  0  │ seq u64 │ number │ length │ length   │ controls │   body    │
//	│      │  u8  │  u8   │     │         │ of controls u32 │ of body  │          │           │
//	└──────┴──────┴───────┴─────┴─────────┴────────┴────────┴──────────┴──────────┴───────────┘
//
// Hello, welcome and the error in place of one are a gRPC message each (google.protobuf.BytesValue), all others follow each other on the line. seq numbers a
// client's calls; whatever answers one has its number. A call that is sent again keeps it. That of hello and welcome numbers
// the streams of a session, so that a server knows the newest.
//
//	control    kind u8 │ epoch u64 │ to i64 │ cut u64 │ source str │ split str │ n u32 │ n × (key str │ present u8 │ blob)
//	str, blob  length u32 │ bytes; a str has at most 64 KiB
//	progress   position i64 │ rows i64 │ batches i64
//
// What a client sends, by kind, and its reply's body, which always begins with the cut that is wanted and the
// numbers of updates applied, all and the client's own:
//
//	1 hello    version u32 │ shards u32 │ shard u32 │ resumed u32 │ role u32 │ precision u32 │ generation u64 │ session u64 │
//	           alive u32, ms │ job str │ plan str │ layout str │ source str │ model str │ shape str │ worker str
//	3 lookup   nk u32 │ nv u32 │ nk × keys u32 │ nv × values u32 │ ns u32 │ ns × states u32 │ keys i64 …
//	                                                                                 reply: │ values f32 … │ states f32 …
//	4 dense    have u64 │ room u32                                                   reply: │ version u64 │ n u32 │ n × f32
//	5 stage    epoch u64 │ from i64 │ to i64 │ examples u64 │ time i64 │ lr f32 │ before u64 │ source str │ split str │
//	           nk u32 │ nc u32 │ ng u32 │ nd u32 │ nt u32 │ nk × keys u32 │ nc × counts u32 │ ng × grads u32 │
//	           keys i64 … │ counts u32 … │ grads f32 … │ nd × f32 │ nt bytes         reply: -
//	           flags: what becomes of the rows ([param.Op])
//	6 control  -                                                                     reply: -
//	7 acquire  epoch u64 │ source str │ split str                                    reply: │ applied progress │ n u32 │ n × progress
//	8 close    - ; flag 1: clean                                                     reply: -
//
// What a server sends:
//
//	2 welcome  incarnation u64 │ limit u64, bytes of a frame │ ticket, 32 bytes
//	9 reply    cut u64 │ commits u64 │ own u64 │ as above
//	10 error   n u8 │ n × code u8 │ code 2: epoch u64 │ current u64 │ source str │ split str │ text str
//	11 alive   - ; the call of this seq is still being handled
//
// The version comes first in the hello of every version of the protocol, and magic, header and error stay as they are.
//
// # Precision
//
// The hello says in which format rows and gradients travel in the stream ([param.Precision]): 0 float32, 1 bf16, 2 fp16. In the latter two
// the values of a lookup without state are 2 bytes each, and in place of each table's grads comes an exponent k i32, 0 in bf16, and
// 2 bytes each of the gradients times 2ᵏ. The values of edits, states, values that come with them, and all that is dense are float32 in any.
//
// # Limits
//
// A frame has at most MaxMessage bytes on either side, [ErrTooLarge] otherwise. Both sides make room as bytes arrive, not
// as lengths announce them; only the reply to a lookup, whose length the client says, is made whole, below that limit.
//
// # Trust
//
// TLS, tokens and the names of certificates say who may connect, and what for ([ServerConfig], [ClientConfig], [Granted]). A line is its stream's who has the
// ticket, which travels as what else a stream says does: a network that can be read without TLS would give away the rows too. A client that may train
// is trusted with the parameters, but no bytes that he sends make a process panic.
package wire
