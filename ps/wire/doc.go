// Package wire carries a client's stream to a shard over gRPC: [Conn] is a [ps.Conn] whose other end is in another process,
// and [RegisterServer] hands what arrives to the ps.Conn of a [Host].
//
// A session has, to each shard, one bidirectional gRPC stream at a time, of service monolith.ps.v1.Stream, method Session.
// Calls are made one after another in it, so it keeps the order that ps.Conn promises. A stream that breaks is replaced,
// and the call under way is sent again: calls change nothing when they are repeated. The server lets streams of one session
// follow each other without overlap.
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
// It travels as gRPC messages of at most 256 KiB each, cut anywhere, and begins a message of its own. seq numbers a
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
//	2 welcome  incarnation u64 │ limit u64, bytes of a frame
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
// TLS, tokens and the names of certificates say who may connect, and what for ([ServerOptions], [DialOptions], [Granted]). A client that may train
// is trusted with the parameters, but no bytes that he sends make a process panic.
package wire
