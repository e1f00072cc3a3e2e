package serving_test

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/serving"
)

// TestReadModelConfigs: a file of TensorFlow Serving is read as it says, but for what is passed over, which is named.
func TestReadModelConfigs(t *testing.T) {
	t.Parallel()
	usual := serving.Policy{Latest: 3}
	const all = `
# two models
model_config_list {
  config {
    name: "click"
    base_path: "/models/click"
    model_platform: "tensorflow"
    model_version_policy { specific { versions: 42 versions: 43 } }
    version_labels { key: 'stable' value: 42 }
    version_labels { key: 'canary' value: 43 }
  }
  config: { name: "rank", base_path: "/models/rank", model_version_policy: { all: {} } }
  config { name: "new" base_path: "/models/new" model_version_policy { latest { num_versions: 2 } } }
  config { name: "usual" base_path: "usual" }
}`
	want := []serving.ModelConfig{
		{Name: "click", Dir: "/models/click", Policy: serving.Policy{Specific: []int64{42, 43}}, Labels: map[string]int64{"stable": 42, "canary": 43}},
		{Name: "rank", Dir: "/models/rank", Policy: serving.Policy{All: true}},
		{Name: "new", Dir: "/models/new", Policy: serving.Policy{Latest: 2}},
		{Name: "usual", Dir: "usual", Policy: usual},
	}
	got, passedOver, err := serving.ReadModelConfigs([]byte(all), usual)
	if err != nil || passedOver != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v; want %+v", got, passedOver, err, want)
	}
	logs := strings.Replace(all, `base_path: "usual" }`, `base_path: "usual" logging_config { sampling_config { sampling_rate: 0.1 } } }`, 1)
	got, passedOver, err = serving.ReadModelConfigs([]byte(logs), usual)
	if err != nil || status.Code(passedOver) != codes.InvalidArgument || !strings.Contains(passedOver.Error(), "passed over: line 14:") || !strings.Contains(passedOver.Error(), "logging_config") || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v; want %+v", got, passedOver, err, want)
	}
	for text, says := range map[string]string{
		"":                     "no model_config_list",
		"model_config_list {}": "no model_config_list",
		"model_config_list {\n  config { name: click }\n}":                                                 "line 2:",
		`model_config_list { config { name: "a" base_path: "/a" } config { name: "a" base_path: "/b" } }`:  `two models "a"`,
		`model_config_list { config { name: "a" } }`:                                                       "needs a name and a folder",
		`model_config_list { config { base_path: "/a" } }`:                                                 "needs a name and a folder",
		`model_config_list { config { base_pth: "/a" name: "a" } }`:                                        "needs a name and a folder",
		`model_config_list { config { name: "a" base_path: "gs://b/a" } }`:                                 "lies in a store",
		`model_config_list { config { name: "a" base_path: "/a" model_version_policy { specific {} } } }`:  "model a: the policy names no version",
		`model_config_list { config { name: "a" base_path: "/a" } } custom_model_config { type_url: "x" }`: "line 1:",
	} {
		if got, _, err := serving.ReadModelConfigs([]byte(text), usual); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v; want %s", text, got, err, says)
		}
	}
}

// FuzzModelConfigs: whatever the text, there are models that can be configured, or a reason.
func FuzzModelConfigs(f *testing.F) {
	f.Add([]byte(`model_config_list { config { name: "a" base_path: "/a" version_labels { key: "x" value: 1 } } }`))
	f.Add([]byte(`model_config_list { config { name: "a" base_path: "/a" unknown { y: 1 } } }`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _, err := serving.ReadModelConfigs(text, serving.Policy{})
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		names := map[string]bool{}
		for _, c := range got {
			if c.Name == "" || c.Dir == "" || names[c.Name] {
				t.Fatalf("%+v", got)
			}
			names[c.Name] = true
		}
	})
}
