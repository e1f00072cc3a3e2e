// Package shard is one shard of a parameter server.
//
// [Shard] is its state machine: rows, dense tensors, what is applied and staged of each split, sessions, the barrier of a cut.
// It waits for nothing and nobody: no disk, no network, no other goroutine but those that share an update. A [Node] is the shard with its lock, its streams ([ps.Conn]) and, if it keeps one, its
// write-ahead log; it is what a server serves and what a coordinator has as a [ps.Peer]. Rows live in ps/table.
//
// A Node begins without a state, unless its log gives one back, and serves nobody until the coordinator has given it one of a
// generation ([Node.Load]). Nothing waits for the disk or the network under its lock: the log is appended to under it and
// waited for outside.
//
// What only the coordinator of the same process asks, of shard 0, is in first.go.
package shard
