package serving

import (
	"encoding/json"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestFeatureLists: lists of features are read as instances that say the same are, and what is no list of numbers is refused.
func TestFeatureLists(t *testing.T) {
	t.Parallel()
	v := &Version{in: &inputs{names: []string{"id", "x"}, types: map[string]ColumnType{"x": Floats}}}
	got, err := v.readFeatureLists(json.RawMessage(` {"id" : [ 5, [6,-1 , 7] ,[],null,[8]
	], "x":[0.1,[1e2],[ -3 , 4],[],1]} `), limits{examples: 5})
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(`[{"id": 5, "x": 0.1}, {"id": [6, -1, 7], "x": [1e2]}, {"id": [], "x": [-3, 4]}, {"id": null, "x": []}, {"id": [8], "x": 1}]`), &rows); err != nil {
		t.Fatal(err)
	}
	want, err := v.readFeatures(rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range want.Columns {
		if g := got.Columns[name]; g.Type != c.Type || !slices.Equal(g.Offsets, c.Offsets) || !slices.Equal(g.Ints, c.Ints) || !slices.Equal(g.Floats, c.Floats) || got.Rows != want.Rows {
			t.Errorf("%s: %+v, want %+v", name, g, c)
		}
	}
	for text, code := range map[string]codes.Code{
		`{}`: codes.InvalidArgument, `[]`: codes.InvalidArgument, `{"id": 5}`: codes.InvalidArgument, `{"id": ["5"]}`: codes.InvalidArgument, `{"id": [5.5]}`: codes.InvalidArgument,
		`{"id": [[[5]]]}`: codes.InvalidArgument, `{"id": [{"a": 5}]}`: codes.InvalidArgument, `{"id": [true]}`: codes.InvalidArgument, `{"id": [5], "x": [1, 2]}`: codes.InvalidArgument,
		`{"other": [5]}`: codes.InvalidArgument, `{"id": [1, 2, 3, 4, 5, 6]}`: codes.ResourceExhausted, `{"id": [[5, "]"]]}`: codes.InvalidArgument, `{"id": ["a,b"]}`: codes.InvalidArgument,
		`{"id": [9223372036854775808]}`: codes.InvalidArgument, `{"id": null}`: codes.InvalidArgument,
	} {
		if _, err := v.readFeatureLists(json.RawMessage(text), limits{examples: 5}); status.Code(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
}
