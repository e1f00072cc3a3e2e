package beam

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// flinkJob is a job as Flink's REST interface lists it.
type flinkJob struct {
	ID    string `json:"jid"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// cancelAtFlink cancels the Flink job of a Beam job, whose name is the Beam job's id up to its last "_", and reports whether there is
// one, ended or not: a job that was submitted is not there before its jars are.
func cancelAtFlink(ctx context.Context, rest, id string) (found bool, _ error) {
	name := id
	if i := strings.LastIndexByte(id, '_'); i > 0 {
		name = id[:i]
	}
	var all struct {
		Jobs []flinkJob `json:"jobs"`
	}
	if err := flinkCall(ctx, http.MethodGet, rest, "/jobs/overview", &all); err != nil {
		return false, err
	}
	for _, job := range all.Jobs {
		if job.Name != name {
			continue
		}
		found = true
		switch job.State {
		case "FINISHED", "FAILED", "CANCELED", "CANCELLING":
			continue
		}
		if err := flinkCall(ctx, http.MethodPatch, rest, "/jobs/"+job.ID+"?mode=cancel", nil); err != nil {
			return true, err
		}
	}
	return found, nil
}

// flinkCall calls Flink's REST interface and decodes its answer.
func flinkCall(ctx context.Context, method, rest, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+rest+path, nil)
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }() // it is read to its end
	b, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err != nil {
		return err
	}
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, r.Status, b)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}
