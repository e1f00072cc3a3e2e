// Package migrate takes models of bytedance/monolith over and gives them back: [Import] makes a snapshot for a job of a checkpoint of
// its tables (package entrydump), [Export] writes such a checkpoint of a snapshot. docs/from-monolith.md says what becomes of what.
//
// Rows come in any order and in as many files as there were; a snapshot has them by shard, in the order of [table.Hash]. An external
// merge sort (package exchange) brings them there, so that memory holds a bounded part of them whatever the size of the tables.
package migrate
