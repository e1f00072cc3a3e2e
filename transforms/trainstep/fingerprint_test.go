package trainstep_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Stages that hold a model have all of it in their fingerprints; package zoo tests that every setting reaches the model's
// String.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	type options struct {
		trainstep.StepOptions
		Model zoo.Config
	}
	base := options{
		trainstep.StepOptions{Seed: 1, LR: 1, Keys: []string{"user"}},
		zoo.Config{Name: zoo.DeepFM, Seed: 1, Dim: 4, Features: []zoo.Feature{{Name: "user"}, {Name: "age", Kind: model.Dense, Dim: 1}}},
	}
	inModel := map[string]any{"Model.Features": []zoo.Feature{{Name: "item"}}, "Model.Hidden": []int{3}, "Model.Name": zoo.FM, "Model.BatchNorm": true}
	inModel["StepOptions.Schedule"] = optim.Schedule{WarmUp: 3}
	free := map[string]string{}
	for _, name := range []string{"Tables", "Heads", "Attention", "KernelNorm", "KernelNormFixed", "NoBias", "Dropout", "Activation", "CrossLayers", "CrossRank", "CrossExperts", "EmbeddingInit", "EmbeddingL2", "BiasL2", "DenseL2", "BiasOptimizer", "VecOptimizer", "DenseOptimizer", "ClipNorm"} {
		free["Model."+name] = "its String is tested in package zoo"
	}
	for _, name := range []string{
		"AttentionLayers", "AttentionHeads", "AttentionWidth", "Maps", "Reduction", "Bottom", "Blocks", "BlockWidth", "Second", "FusionHeads", "Experts", "OwnExperts", "Levels", "Tower", "Relation", "Item", "Vector", "Domain", "Personal", "Gate", "Products", "Sums", "Rank", "Tokens", "TokenWidth", "Expansion",
		"TopExperts", "GateNoise", "Balance", "Temperature", "Positions", "CrossDropout", "Average", "AGRU", "CellActivation", "Norm.Decay", "Norm.MaxScale", "Norm.MaxShift", "Routes.L0", "Routes.High", "Routes.Low", "Routes.Temperature", "Routes.StraightThrough",
	} {
		free["Model."+name] = "its String is tested in package zoo"
	}
	for name, stage := range map[string]func(options, model.Model) interface{ Fingerprint() string }{
		"step": func(o options, m model.Model) interface{ Fingerprint() string } {
			return trainstep.NewStep(m, nil, o.StepOptions)
		},
		"lookup": func(_ options, m model.Model) interface{ Fingerprint() string } { return trainstep.NewLookup(m, nil) },
		"score": func(o options, m model.Model) interface{ Fingerprint() string } {
			return trainstep.NewScore(m, nil, 1, o.Keys...)
		},
		"predict": func(o options, m model.Model) interface{ Fingerprint() string } {
			return trainstep.NewPredict(m, nil, 1, []trainstep.Field{{Name: fmt.Sprint(o.Keys)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := pipelinetest.FingerprintHarness[options]{
				Options: base, Other: inModel, Free: map[string]string{},
				New: func(t *testing.T, o options) interface{ Fingerprint() string } {
					t.Helper()
					// Only settings of the stage and a few of the model are tried here.
					c := zoo.Config{Name: o.Model.Name, Seed: o.Model.Seed, Dim: o.Model.Dim, Features: o.Model.Features, Hidden: o.Model.Hidden, BatchNorm: o.Model.BatchNorm, Interactions: o.Model.Interactions}
					m, err := zoo.New(c)
					if err != nil {
						t.Fatal(err)
					}
					return stage(o, m)
				},
			}
			maps.Copy(h.Free, free)
			switch name {
			case "step":
				h.Free["StepOptions.Observe"] = "it changes nothing"
				h.Free["StepOptions.Threads"] = "results have the same bits"
				h.Free["StepOptions.MaxStaleness"] = "each worker's own matter: it changes nothing where nobody else trains"
				h.Free["StepOptions.Trained"] = "what was trained on"
				h.Free["StepOptions.TrainedEvery"] = "what others trained on, and when this process hears of it"
				h.Free["StepOptions.Identities"] = "what the input holds"
			case "score", "predict":
				for _, field := range []string{"Seed", "Identities", "LR", "Observe", "Progressive", "Threads", "MaxStaleness", "ReferenceBatch", "Precision", "Schedule", "Trained", "TrainedEvery"} {
					h.Free["StepOptions."+field] = "of training"
				}
			default:
				h.Free["StepOptions"] = "the stage has none"
			}
			pipelinetest.TestFingerprint(t, h)
		})
	}
}

// TestFingerprintHasSteps: bounds of gradients and schedules of single parameters are part of the plan.
func TestFingerprintHasSteps(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for name, change := range map[string]func(*param.Layout){
		"none":     func(*param.Layout) {},
		"delay":    func(l *param.Layout) { l.Tables[0].Segments[0].Delay = 0.5 },
		"clip":     func(l *param.Layout) { l.Tables[0].Segments[0].Clip = 0.5 },
		"schedule": func(l *param.Layout) { l.Tables[0].Segments[0].Schedule = optim.Schedule{WarmUp: 5} },
		"dense":    func(l *param.Layout) { l.Dense[0].Schedule = optim.Schedule{WarmUp: 5} },
	} {
		m, err := zoo.New(zoo.Config{Name: zoo.DeepFM, Features: []zoo.Feature{{Name: "user"}, {Name: "item"}}})
		if err != nil {
			t.Fatal(err)
		}
		change(m.Layout())
		f := trainstep.NewStep(m, nil, trainstep.StepOptions{}).Fingerprint()
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s have one fingerprint, %s", name, other, f)
		}
		seen[f] = name
	}
}
