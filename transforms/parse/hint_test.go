package parse_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/transforms/parse"
)

// TestBadRowsSayWhatTheyAre: the reason names what a record is wrapped in, and relatives of libfm.
func TestBadRowsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format parse.Format
		record string
		want   string
	}{
		{parse.JSONL, "\x00\x00\x00\x00*{}", `malformed json: '\x00' at byte 0 where an object should be; the record begins with a schema registry's frame (schema 42), and behind its 5 bytes comes JSON: produce it without the frame, with a plain JSON serializer`},
		{parse.JSONL, "\x1f\x8b\x08", `malformed json: '\x1f' at byte 0 where an object should be; the record is compressed by gzip: write it plain; for a topic, set compression.type at the producer instead`},
		{parse.JSONL, `{"click":NaN}`, `malformed json: 'N' at byte 9 where a value should be; JSON has neither NaN nor infinities: write null`},
		{parse.LibFM, "1 # x", `malformed libfm: entry "#" is not index:value; the row has a comment: remove comments, with sed 's/ *#.*//' FILE | grep . for example`},
	} {
		opts := parse.Options{Format: tt.format}
		if tt.format == parse.JSONL {
			opts.Labels, opts.Features = []parse.Label{{Column: "click"}}, []parse.Feature{{Name: "user", Slot: 1}}
		}
		bad := parseRecords(t, opts, "", []byte(tt.record)).bad
		if len(bad) != 1 || !strings.HasPrefix(bad[0], "src/part-0 position 0: "+tt.want+" ") {
			t.Errorf("%q: %q, want %s", tt.record, bad, tt.want)
		}
	}
}
