package job_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestEvaluationIsToldOnce trains two epochs: the log has one line of each evaluation, with all metrics, and no notice says
// it again.
func TestEvaluationIsToldOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 300, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	var log bytes.Buffer
	scores := map[int]job.Scores{}
	_, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "run", "epochs=2"), job.RunOptions{
		Logger: slog.New(slog.NewJSONHandler(&log, nil)),
		Notice: func(text string) {
			if strings.Contains(text, "log_loss") {
				t.Errorf("notice: %s", text)
			}
		},
		Evaluated: func(epoch int, s job.Scores) { scores[epoch] = s },
	})
	if err != nil {
		t.Fatal(err)
	}
	var epochs []int
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "log_loss") {
			continue
		}
		var l struct {
			Msg                       string
			Epoch                     int
			AUC, LogLoss, Calibration *float64
			LR                        *float64 `json:"lr_factor"`
		}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(line, "log_loss", "LogLoss")), &l); err != nil {
			t.Fatal(err)
		}
		want := scores[l.Epoch]
		if l.Msg != "evaluated" || l.AUC == nil || l.LogLoss == nil || l.Calibration == nil || l.LR == nil || max(*l.AUC-want["auc"], want["auc"]-*l.AUC) > 1e-5 {
			t.Errorf("%s of %v", line, want)
		}
		epochs = append(epochs, l.Epoch)
	}
	if len(epochs) != 2 || epochs[0] != 1 || epochs[1] != 2 {
		t.Errorf("evaluations of epochs %v in the log:\n%s", epochs, &log)
	}
}

// TestMemoryIsToldAtTheStart: before anything is read a run says what a row takes, as check does, and how many there is room for.
func TestMemoryIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 100, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	cfg := epochsJob(t, dir, "train.libfm", "run", "ps.memory=1MB")
	need, err := job.Need(t.Context(), cfg, job.NeedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{Logger: slog.New(slog.NewJSONHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Msg         string
		Dense       int64  `json:"dense_bytes"`
		Rows        string `json:"bytes_a_row"`
		Limit, Room int64
	}
	first, _, _ := strings.Cut(strings.NewReplacer("limit_bytes", "limit", "room_for_rows", "room").Replace(log.String()), "\n")
	if err := json.Unmarshal([]byte(first), &got); err != nil {
		t.Fatal(err)
	}
	of := need.Tables[0]
	if got.Msg != "memory of tables" || got.Dense != need.Dense || got.Rows != fmt.Sprintf("%d (%s)", of.RowBytes, of.Name) ||
		got.Limit != need.Limit || got.Room*of.RowBytes > got.Limit || (got.Room+1)*of.RowBytes <= got.Limit {
		t.Errorf("the first line is %s; check says %+v", first, need)
	}
}
