package kafkasink_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[kafkasink.Options]{
		Options: kafkasink.Options{
			Brokers: []string{"a:1"}, Topic: "bad", Codec: "none", MaxBytes: 1000, RetryFor: time.Second, Timeout: time.Second, ClientID: "me", TLS: func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }, SASL: plain.Mechanism{}, Keys: "k.",
			Output: "rows", CommitEvery: time.Second, CommitRows: 10,
		},
		New: func(t *testing.T, o kafkasink.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := kafkasink.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{"Brokers": []string{"b:1"}, "Codec": "gzip", "TLS": (func() *tls.Config)(nil), "SASL": plain.Mechanism{Username: "u"}},
		Free: map[string]string{
			"Brokers":  "each process may reach the cluster by other addresses",
			"Codec":    "how records travel",
			"MaxBytes": "how records are cut into requests",
			"RetryFor": "how long is tried, not what is written",
			"Timeout":  "as RetryFor",
			"ClientID": "a name for logs",
			"TLS":      "how a process connects",
			"SASL":     "as TLS",
			"Keys":     "how errors are worded",

			"CommitEvery": "when readers see a row",
			"CommitRows":  "as CommitEvery",
		},
	})
}
