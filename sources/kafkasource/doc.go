// Package kafkasource reads the partitions of a Kafka topic as [pipeline.Block] elements.
//
// A training system must not lose records without saying so, and must be able to continue exactly where it stopped. The
// readers of the usual client libraries put availability first: they jump to the log's start when retention has passed
// their position, read on in a topic that was deleted and re-created, and one of them hands out aborted records. So this
// package has its own fetch loop, one for every partition, on the protocol messages of kafka-go. It promises:
//
//   - A position is the offset of the next record. Reading on from any position that a reader returned, or that is
//     in the position column, loses and repeats nothing.
//   - A position outside the log is a [*pipeline.GapError] that says what the log has: retention or DeleteRecords have
//     passed it, or the log was truncated, or the topic was re-created. Jumps inside the log are accepted only where
//     compaction explains them.
//   - Under [ReadCommitted] only records of committed transactions are delivered, up to the last stable offset. Control
//     records are never delivered.
//   - A batch that is damaged or too large is a bad row; a policy that skips those continues after it. No answer makes the
//     package take memory for more than has come, but for what [Options.MaxBatchBytes] allows.
//   - Leader changes and broker restarts are waited out for [Options.RetryFor], then end in [pipeline.ErrUnavailable].
//
// An offset alone does not say in which log it counts. So the identities of cluster and topic, where a split was first
// taken up and the leader epoch of what was read are remembered with it ([Source.Recall]): a topic that was re-created, or
// a log that was cut back, while nobody was reading is noticed too, as long as it is stored with the positions.
//
// Consumer groups are not used for reading: positions live with the parameters (see the pipeline package). With
// [Options.GroupID] the stored positions are committed to a group, so that the usual tools show the lag.
package kafkasource
