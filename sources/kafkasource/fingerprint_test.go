package kafkasource_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[kafkasource.Options]{
		Options: kafkasource.Options{
			Brokers: []string{"a:1", "b:1"}, Topic: "clicks", Name: "clicks-2", DiscoverEvery: time.Minute, Partitions: []int{1, 2},
			Start: kafkasource.Bound{Place: kafkasource.Earliest, Offsets: map[int]int64{1: 5}},
			End:   kafkasource.Bound{Place: kafkasource.Latest, Offsets: map[int]int64{1: 50}},
			OnGap: kafkasource.FailOnGap, GroupID: "g", ClientID: "c", MaxWait: time.Second, MaxBytes: 100, MaxBatchBytes: 1000, MaxRows: 10,
			RetryFor: time.Minute, Timeout: time.Second, TLS: &kafkasource.TLS{}, SASL: &kafkasource.SASL{}, Logger: slog.New(slog.DiscardHandler),
		},
		New: func(t *testing.T, o kafkasource.Options) interface{ Fingerprint() string } {
			t.Helper()
			o.TLS, o.SASL = nil, nil // they have to be whole; neither is in the fingerprint
			s, err := kafkasource.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{
			"Brokers": []string{"c:1"}, "Start.Place": kafkasource.Latest, "End.Place": "", "Isolation": kafkasource.ReadUncommitted, "OnGap": kafkasource.SkipGap,
		},
		Free: map[string]string{
			"Brokers":       "each process may reach the cluster by other addresses",
			"GroupID":       "it is never read",
			"ClientID":      "a name for the brokers' logs",
			"MaxWait":       "when records come, not which",
			"MaxBytes":      "rows and positions are the same however they are cut into blocks",
			"MaxRows":       "as MaxBytes",
			"RetryFor":      "how long is tried, not what is read",
			"DiscoverEvery": "when new partitions are found, not what is read of them",
			"Timeout":       "as RetryFor",
			"TLS":           "how a process connects",
			"Logger":        "where it is said, not what is read",
			"SASL":          "as whom a process connects; a secret besides",
		},
	})
}
