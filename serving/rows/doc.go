// Package rows lets a server of predictions read the rows of its models from other processes, each of which holds those of one range of hashes: an entry and its row shards.
//
//	entry: graph, dense weights, cache ──Lookup──> row shard 0 of 2: the rows of the lower half of the hashes
//	                                   └─Lookup──> row shard 1 of 2: those of the upper half
//
// Both read the same native exports, which never change; an export is told by the checksum of its manifest. So a row that was read once may be kept, and what is predicted does not
// depend on where rows are, to the bit. [Client] is the side of the entry, [Server] that of a shard; package serving joins both to its models.
package rows
