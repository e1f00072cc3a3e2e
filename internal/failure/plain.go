package failure

import (
	"slices"
	"strings"
)

// Kind is [New] for an error whose text says of what kind it is and nothing else: [Plain] leaves it out.
func Kind(code Code, text string) error { return &kind{coded{code, text}} }

type kind struct{ coded }

// prefixes are the names that our packages put before their errors. They help readers of the code, and no user.
const prefixes = ` arrowx batch beam bench broker cluster conf crew dataflow deadletter demo entrydump epochsource example exchange export fid flat graph
	infer job kafkasink kafkasource local memsource metric metricsink model native onnx openblas optim param parquetsink parquetsource parse peek
	pipeline position ps psbench readers reference remote replica rows safetensors savedmodel score secret serving simd snapshot snapshotsource synthsource table
	telemetry textsource tfbundle tfrecord tfrecordsource trainstep tsvsink upload version wal wire zoo `

// Plain is the text of an error for people: without names of packages before what it wraps, and without what only says of
// what [Kind] it is. Errors that are wrapped are found by walking them; text that another process sent stays as it is.
func Plain(err error) string {
	if text := plain(err); text != "" {
		return text
	}
	return err.Error()
}

func plain(err error) string {
	text := err.Error()
	var inner []error
	switch x := err.(type) { //nolint:errorlint // what err wraps is walked through
	case interface{ Unwrap() error }:
		inner = []error{x.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = x.Unwrap()
	}
	done := 0 // what is before it in text has been dealt with
	for _, e := range inner {
		if e == nil || e.Error() == "" {
			continue
		}
		was := e.Error()
		at := strings.Index(text[done:], was)
		if at < 0 {
			continue
		}
		at += done
		if _, only := e.(*kind); only { //nolint:errorlint // itself
			begin, end := at, at+len(was)
			for !alone(text, begin, end) {
				next := strings.Index(text[end:], was)
				if next < 0 {
					break
				}
				begin, end = end+next, end+next+len(was)
			}
			if !alone(text, begin, end) {
				continue
			}
			text, done = text[:begin-len(": ")]+text[end:], begin-len(": ")
			continue
		}
		now := plain(e)
		text, done = text[:at]+now+text[at+len(was):], at+len(now)
	}
	for {
		word, rest, ok := strings.Cut(text, ": ")
		if !ok || rest == "" || !isPrefix(word) {
			return text
		}
		text = rest
	}
}

// alone reports whether a part of a text stands between colons, or ends what is said.
func alone(text string, begin, end int) bool {
	rest := text[end:]
	ends := rest == ""
	for _, mark := range []string{":", ";", "\n", " (", ")", ","} {
		ends = ends || strings.HasPrefix(rest, mark)
	}
	return ends && strings.HasSuffix(text[:begin], ": ")
}

// isPrefix reports whether a word is a name that our packages put before their errors.
func isPrefix(word string) bool {
	return slices.Contains(strings.Fields(prefixes), word)
}
