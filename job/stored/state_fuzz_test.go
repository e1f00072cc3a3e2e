package stored

import (
	"context"
	"testing"
)

// blobs is worker state in memory.
type blobs map[string][]byte

func (b blobs) State(_ context.Context, key string) ([]byte, error) { return b[key], nil }

func (b blobs) set(_ context.Context, key string, value []byte) error {
	b[key] = value
	return nil
}

// FuzzTrainerState reads the state that a snapshot brings: an error, or a state that reads the same when it is stored.
func FuzzTrainerState(f *testing.F) {
	f.Add([]byte(`{"source":"s","epochs":3,"lr":0.5,"Best":0.7,"Bad":1}`))
	f.Add([]byte(`{"source":"s","epochs":-3,"lr":-1e38}`))
	f.Add([]byte(`{"lr":1e39}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := RestoreTrainer(t.Context(), blobs{TrainerKey: b}, "s", nil)
		if err != nil {
			return
		}
		once := blobs{}
		if err := s.Store(t.Context(), once.set); err != nil {
			t.Fatal(err)
		}
		again, err := RestoreTrainer(t.Context(), once, "s", nil)
		if err != nil {
			t.Fatalf("%q was read and cannot be read again: %v", b, err)
		}
		twice := blobs{}
		if err := again.Store(t.Context(), twice.set); err != nil {
			t.Fatal(err)
		}
		if x, y := string(once[TrainerKey]), string(twice[TrainerKey]); x != y {
			t.Fatalf("%s became %s", x, y)
		}
	})
}
