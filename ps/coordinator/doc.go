// Package coordinator joins shards to one parameter server. A [Cluster] is in the process of shard 0 and reaches every shard,
// its own too, as a [ps.Peer]: it gives all of them a state of one generation whenever one of them has lost its own, takes
// cuts, writes snapshots of them, and knows the workers. With all shards in one process it is a whole parameter server.
//
// # A snapshot is one cut
//
// [Cluster.Snapshot] asks every client that owns a split for a marker. Commits and markers are queued in one order for all
// streams, so the marker divides a client's updates in the same place on every shard. A shard lets nobody who has passed
// commit more until all have; then it continues at once, while the rows of that moment are copied on write to disk. Whatever
// happens to owners between the first marker and the last makes the cut begin again; orphaned splits are settled first.
//
// # Shape, rules and roles
//
// A snapshot's parameters must fit the layout's shape; their rules may be others ([Cluster.Changes]). What fits only by
// [Options].Fit, and the parameters of another run ([Options].From), become a snapshot of the cluster's own first, so that
// shards, logs and going back know of snapshots that fit alone. Workers are a [ps.Trainer] or a [ps.Reader]; those of one
// source form a group that shares its splits, and positions of several sources lie side by side.
//
// Locks are in the documentation of package ps.
package coordinator
