// Package kafkawire speaks Kafka's protocol with brokers: connections (TLS, SASL), the primitive types of messages, and
// where a topic's partitions are. The source and the sink for Kafka add the messages of reading and writing to it.
//
// Answers are decoded here and not by kafka-go: its decoder makes arrays of whatever length an answer names, so that 20
// bytes from anything that listens could ask for more memory than there is, which no recover catches. [Decoder] allocates
// no more than the bytes it was given justify, and frames are bounded and read into memory as they come.
package kafkawire
