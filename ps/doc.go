// Package ps is the parameter server: shards that hold embedding rows, dense tensors and their optimizer state, a client
// that looks them up and pushes gradients, and snapshots. A [Cluster] is any number of shards in this process.
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
// # A snapshot is one cut
//
// [Cluster.Snapshot] asks every client that owns a split for a marker. Commits and markers are queued in one order for all
// streams, so the marker divides a client's updates in the same place on every shard. A shard lets nobody who has passed
// commit more until all have; then it continues at once, while the rows of that moment are copied on write to disk. Whatever
// happens to owners between the first marker and the last makes the cut begin again; orphaned splits are settled first.
//
// # What depends on what
//
// [Shard] is the state machine of one shard: no I/O, clocks or goroutines. [Conn] is a client's ordered stream to it;
// [Client] partitions, queues and takes over against that interface alone. Cluster joins the two in one process and
// coordinates cuts. Rows live in ps/table, files in ps/snapshot; ps/pstest has the suites that all must pass.
//
// A shard's place in a cluster is a [Node]: the shard with its lock, its streams and, if it keeps one, its write-ahead log.
// Nodes may be in processes of their own, behind [Peer]; that of shard 0 has the Cluster, which gives all of them a state of
// one generation, whenever one of them has lost its own.
//
// # Shape, rules and roles
//
// A snapshot's parameters must fit the layout's shape; their rules may be others ([Cluster.Changes]). What fits only by
// [Options].Fit, and the parameters of another run ([Options].From), become a snapshot of the cluster's own first, so that
// shards, logs and going back know of snapshots that fit alone. Workers are [Trainer] or [Reader]; those of one source form
// a group that shares its splits, and positions of several sources lie side by side.
//
// Locks, in the order they are taken: Cluster.turn, Node.use, Client stream turn, Node.mu (by shard), Client.mu, groups.mu,
// group.mu, Cluster.mu.
package ps
