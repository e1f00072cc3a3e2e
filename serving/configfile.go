package serving

import (
	"cmp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"

	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// ReadModelConfigs reads what TensorFlow Serving's --model_config_file has: a ModelServerConfig in the text format of protocol buffers, with a model_config_list. usual is the policy of
// models without one of their own. passedOver says what is not read, with line and column, such as logging_config; nil: all is. Errors: INVALID_ARGUMENT, with line and column where the text
// is none.
func ReadModelConfigs(text []byte, usual Policy) (configs []ModelConfig, passedOver, err error) {
	out := &tfs.ModelServerConfig{}
	if passedOver = prototext.Unmarshal(text, out); passedOver != nil {
		out = &tfs.ModelServerConfig{}
		if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, out); err != nil {
			return nil, nil, invalid("no ModelServerConfig: %s", inText(err))
		}
		passedOver = invalid("passed over: %s", inText(passedOver))
	}
	configs, err = modelConfigs(out, usual)
	return configs, passedOver, err
}

// inText is an error of prototext without the name of its package, whose white space differs from build to build on purpose.
func inText(err error) string {
	text := strings.TrimSpace(strings.TrimPrefix(err.Error(), "proto:"))
	if _, where, ok := strings.Cut(text, "(line "); ok {
		return "line " + strings.Replace(where, "):", ",", 1)
	}
	return text
}

// modelConfigs are the models of a configuration of TensorFlow Serving; usual is the policy of those without one.
func modelConfigs(c *tfs.ModelServerConfig, usual Policy) (configs []ModelConfig, err error) {
	list := c.GetModelConfigList().GetConfig()
	if len(list) == 0 {
		return nil, invalid("there is no model_config_list with models")
	}
	for i, c := range list {
		p := usual
		switch policy := c.GetModelVersionPolicy(); {
		case policy.GetAll() != nil:
			p = Policy{All: true}
		case policy.GetSpecific() != nil:
			if p = (Policy{Specific: policy.GetSpecific().GetVersions()}); len(p.Specific) == 0 {
				return nil, invalid("model %s: the policy names no version", cmp.Or(c.GetName(), strconv.Itoa(i)))
			}
		case policy.GetLatest() != nil:
			p = Policy{Latest: int(policy.GetLatest().GetNumVersions())}
		}
		configs = append(configs, ModelConfig{Name: c.GetName(), Dir: c.GetBasePath(), Policy: p, Labels: c.GetVersionLabels()})
	}
	return configs, checkConfigs(configs)
}
