package kafkawire

import (
	"strconv"

	"github.com/segmentio/kafka-go"
)

// APIKey numbers the kinds of requests, https://kafka.apache.org/protocol#protocol_api_keys.
type APIKey int16

// The kinds that are in use.
const (
	Produce          APIKey = 0
	Fetch            APIKey = 1
	ListOffsets      APIKey = 2
	Metadata         APIKey = 3
	OffsetCommit     APIKey = 8
	FindCoordinator  APIKey = 10
	SASLHandshake    APIKey = 17
	Versions         APIKey = 18
	CreateTopics     APIKey = 19
	InitProducerID   APIKey = 22
	EpochEnd         APIKey = 23
	AddToTxn         APIKey = 24
	EndTxn           APIKey = 26
	DescribeConfigs  APIKey = 32
	SASLAuthenticate APIKey = 36
)

var apiNames = [...]string{
	Produce: "Produce", Fetch: "Fetch", ListOffsets: "ListOffsets", Metadata: "Metadata", OffsetCommit: "OffsetCommit",
	FindCoordinator: "FindCoordinator", SASLHandshake: "SaslHandshake", Versions: "ApiVersions", CreateTopics: "CreateTopics",
	InitProducerID: "InitProducerId", EpochEnd: "OffsetForLeaderEpoch", AddToTxn: "AddPartitionsToTxn", EndTxn: "EndTxn",
	DescribeConfigs: "DescribeConfigs", SASLAuthenticate: "SaslAuthenticate",
}

func (k APIKey) String() string {
	if k >= 0 && int(k) < len(apiNames) && apiNames[k] != "" {
		return apiNames[k]
	}
	return strconv.Itoa(int(k))
}

// Versions of requests, of the older layout that every broker from Kafka 0.11 to 4 has.
const (
	metadataOld           = 4
	saslHandshakeVersion  = 1
	saslAuthenticatePlain = 0
)

// decodeVersions reads which versions of requests a broker has.
func decodeVersions(b []byte) (map[APIKey][2]int16, error) {
	d := Decoder{B: b}
	if code := kafka.Error(d.Int16()); code != 0 {
		return nil, code
	}
	out := map[APIKey][2]int16{}
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		out[APIKey(d.Int16())] = [2]int16{d.Int16(), d.Int16()}
	}
	return out, d.Err
}

func encodeSASLHandshake(mechanism string) []byte {
	var e Encoder
	e.Text(mechanism)
	return e.B
}

func decodeSASLHandshake(b []byte) (mechanisms []string, code kafka.Error, err error) {
	d := Decoder{B: b}
	code = kafka.Error(d.Int16())
	for n := d.Array(2); n > 0 && d.Err == nil; n-- {
		mechanisms = append(mechanisms, d.Text())
	}
	return mechanisms, code, d.Err
}

func encodeSASLAuthenticate(data []byte) []byte {
	var e Encoder
	e.Int32(int32(len(data)))
	e.Bytes(data)
	return e.B
}

func decodeSASLAuthenticate(b []byte) (data []byte, message string, code kafka.Error, err error) {
	d := Decoder{B: b}
	code = kafka.Error(d.Int16())
	message = d.Text()
	data = d.Bytes()
	return data, message, code, d.Err
}
