// Package replica keeps the weights of a running job in memory, for reading: a [Replica] follows the job's shards and is a moment behind them.
//
// # Which state is read
//
// A shard gives a replica cuts of itself ([ps.ChangesRequest].Cut): rows, ids that have no row any more and dense tensors, as all of them were at one moment between two
// updates. The replica applies a cut as a whole, while nobody reads. A [Reader] that holds the replica reads one state, of which these are true:
//
//   - Of each shard it is one cut, bit for bit, and cuts of a shard come in their order.
//   - Shards are cut each by itself, about Options.Every apart at most: an update that was under way may be in the cut of one shard and not yet in that of another, as it may be
//     for a worker that looks up while others push. Where every update has been applied, cuts of all shards are the same point of every split; [Replica.Status] says which.
//   - All are of one generation. When the shards go back to a snapshot, or become more or fewer, the state before is read until all of them have given one of the new
//     generation, whole; then that is read, of all at once.
//
// Ids without a row read what training would begin their row with. Rows whose time to live has passed are gone when the shard frees their memory or they are touched, as for all
// consumers of changes.
//
// # Who is away
//
// A shard keeps what changes while the replica is away for as long as ps.consumer_idle, in a bit for each row. After that, and where the shard was started again or has
// lost count, the replica is given all rows again, beside those that it has, and begins to read them when they are all there. A shard that does not answer is asked again with growing waits;
// what is read is as old as its last cut ([Replica.AsOf]).
package replica
