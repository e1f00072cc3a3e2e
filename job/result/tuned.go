package result

import "encoding/json"

// Tuned is what a search for settings found.
type Tuned struct {
	// Job is the job's name, Dir where the search keeps its state.
	Job string `json:"job"`
	Dir string `json:"dir"`
	// Metric is the score that decides, Lower reports whether lower values of it are better. Shown
	// are the scores that the table has, Metric among them.
	Metric string   `json:"metric"`
	Lower  bool     `json:"lower_is_better"`
	Shown  []string `json:"shown"`
	// On describes the rows that are measured: "eval.holdout", "eval.source", or "progressive" for
	// the last third of the rows trained on, each predicted before.
	On string `json:"measured_on"`
	// Rows are the rows of each rung that was begun.
	Rows []int64 `json:"rows"`
	// Candidates are all settings to try, those of the highest rung first, the best of a rung first.
	Candidates []TunedCandidate `json:"candidates"`
	// Best is the number of the candidate that won; 0: the job as it is.
	Best int `json:"best"`
	// Noise is by how much the job as it is differs from itself with another seed, the most of all rungs. Gain is by how
	// much the best candidate is better than the job as it is, 0 where that is not above Noise.
	Noise Scalar `json:"noise"`
	Gain  Scalar `json:"gain"`
	// Near is the number of a candidate that was better by no more than Noise, and so was not taken; 0: none was.
	Near int `json:"near,omitempty"`
	// Text is the job with the settings of the best candidate and a table in comments.
	Text string `json:"-"`
	// Out is the file that a command wrote Text to; empty: none.
	Out string `json:"out,omitempty"`
	// Notes say what else you should know.
	Notes []string `json:"notes,omitempty"`
	// BadRows counts the rows that the job as it is left out, by reason.
	BadRows map[string]int64 `json:"bad_rows,omitempty"`
	// Trials counts the trials that are done, Earlier those among them of earlier runs. Seconds are
	// those of all.
	Trials  int     `json:"trials"`
	Earlier int     `json:"earlier,omitempty"`
	Seconds float64 `json:"seconds"`
	// TimedOut reports whether the time limit ended the search, Drained whether the caller did.
	TimedOut bool `json:"timed_out,omitempty"`
	Drained  bool `json:"drained,omitempty"`
}

// Scalar is a number that JSON shows as null where it is none.
type Scalar float64

// MarshalJSON writes null for what is not a number.
func (s Scalar) MarshalJSON() ([]byte, error) {
	if v := Finite(float64(s)); v != nil {
		return json.Marshal(*v)
	}
	return []byte("null"), nil
}

// TunedCandidate is one set of settings. Its figures are those of its highest rung.
type TunedCandidate struct {
	// Number is its place among the candidates; 0: the job as it is.
	Number int `json:"number"`
	// Changes are the keys that differ from the job.
	Changes []TunedChange `json:"changes,omitempty"`
	// Rung is the highest rung that it was tried in, from 1; 0: it was not tried.
	Rung int   `json:"rung"`
	Rows int64 `json:"rows,omitempty"`
	// Scores are those of the measured rows.
	Scores  Scores  `json:"scores,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Lost says why it failed; empty: it did not.
	Lost string `json:"lost,omitempty"`
}

// TunedChange is a key and its value, as --set takes them.
type TunedChange struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Was is the job's own value; empty: it is a default that follows from other keys.
	Was string `json:"was,omitempty"`
}
