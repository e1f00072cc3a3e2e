// Package kafkasink writes records to a Kafka topic: rows of a graph ([Sink]), the records of a synthetic stream
// ([Producer]) and records that could not be used ([DeadLetters]).
//
// A [Producer] loses nothing silently: a call returns nil once all replicas in sync have acknowledged every record it was
// given, and otherwise an error that names those without acknowledgement. Repeating a request whose answer was lost may
// write its records twice (it is not idempotent), so delivery is at least once. Records of one call keep their order in every
// partition. [DeadLetters] delivers as it does.
//
// # Exactly once
//
// A [Sink] writes each row once, as those see it who read committed records (isolation.level=read_committed, the default of
// this project's source):
//
//		source split a ─> waiting ─ begin, produce, commit ─> partition murmur2("source/a")
//		                            transactional id output/topic/source/a
//
//	  - Rows of a split wait in memory, for CommitEvery at most, and then are written in one transaction of milliseconds: all of
//	    them count or none. A request that is repeated is known by its sequence number.
//	  - Each record says in its headers how far its split is with it ([HeaderPosition]). What is committed is therefore known
//	    from the topic alone: [Writer.Resume] reads it back from the ends of its partitions.
//	  - Every split has a transactional id of its own. Resume registers it, upon which the brokers refuse earlier owners
//	    ([pipeline.ErrFenced]), abort what they have produced and not committed, and finish what they have. Whatever is killed
//	    between produce and commit, the split goes on at its last committed row; positions behind it without rows (all were
//	    dropped, or held out) are read again.
//
// What it needs: brokers with transactions (Kafka 0.11 and later; replicated and durable topics, as for anything that is not
// to be lost), the rights to write to the topic, to read it and to use the transactional ids that begin with the output's
// name, and a topic that is not compacted. A split whose records have all been removed by retention is unknown, so
// retention has to be longer than a split may rest. Held against Apache Kafka and kfake by the same tests.
package kafkasink
