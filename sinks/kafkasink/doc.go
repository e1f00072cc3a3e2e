// Package kafkasink writes records to a Kafka topic: blocks of a graph ([Sink]), the records of a synthetic stream
// ([Producer]) and records that could not be used ([DeadLetters]).
//
// Nothing is lost silently: a call returns nil once all replicas in sync have acknowledged every record it was given, and
// otherwise an error that names those without acknowledgement. Repeating a request whose answer was lost may write its
// records twice (there is no idempotent producer), so delivery is at least once. Records of one call keep their order in
// every partition.
package kafkasink
