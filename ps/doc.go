// Package ps is the contract of the parameter server and the client of it: what a shard is to a client ([Conn]) and to the
// coordinator ([Peer]), what workers and the coordinator tell each other, errors, hooks, and which part of a layout lies where
// ([Placement]). Shards hold embedding rows, dense tensors and their optimizer state; a [Client] looks them up and pushes
// gradients. The parts are rooms of their own, which meet here:
//
//	ps/shard        one shard: rows, staged updates, streams, write-ahead log, its part of a cut
//	ps/coordinator  all of them: their state, cuts and snapshots, the workers. coordinator.Open is a whole parameter server
//	ps/wire ps/rpc  the same two interfaces on gRPC
//	ps/table ps/snapshot ps/wal  rows, the files of snapshots, the log of one shard
//	ps/pstest       the suites that every arrangement must pass
//
// # A push is applied once, on all shards or on none
//
// Updates of a split join without a gap, and each is applied on every shard (empty where the shard has none of its rows)
// together with its position. A push is first staged everywhere; once all shards have acknowledged it, it is decided, and
// its commit travels in front of the client's next message:
//
//	client            shard 0                shard 1
//	Push [7,14)  ───> stage [7,14)
//	             ────────────────────────────> stage [7,14)     decided
//	Lookup       ───> commit 14; look up
//	             ────────────────────────────> commit 14; look up
//
// A client that takes a split over fences the former owner with a higher epoch, commits what all shards have and drops the
// rest, so the result is the same bit for bit however often owners die ([Client.Resume]).
//
// # What depends on what
//
// [Client] partitions, queues and takes over against [Conn] alone, and the coordinator gives shards their state and takes cuts
// against [Peer]; of its own process' shard, which is shard 0, it asks a few things more. A shard knows neither. internal/arch
// keeps it so.
//
// # Locks
//
// In the order they are taken: coordinator.Cluster.turn, the turn of a standby, shard.Node.use, the turn of a Client's stream, shard.Node.mu (by
// shard), that of a shard's pair, Client.mu, and in the coordinator groups.mu, group.mu, Cluster.mu.
package ps
