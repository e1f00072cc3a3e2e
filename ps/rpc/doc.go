// Package rpc puts the shards of a parameter server into processes of their own: a [Server] is one shard, and for shard 0
// the coordinator, after an address; a [Remote] is the whole cluster as a worker sees it; [NewPeer] is another process's
// shard as the coordinator sees it.
//
//	worker ── Remote ──┬─ Coordinator (unary) ─────> Server of shard 0 ── coordinator.Cluster ── Peer ─> Shard (unary) of 1, 2 ...
//	                   └─ ps.Client ── wire.Conn ──> Server of every shard ── shard.Node
//
// Rows and gradients travel in package wire's streams, everything else as protobuf messages (proto/monolith/ps/v1). Both
// sides say which job, plan and layout they belong to; a server of another job refuses them.
package rpc
