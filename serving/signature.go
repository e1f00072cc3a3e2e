package serving

import (
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/instance"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/transforms/parse"
)

// The names of signatures, as SavedModels have them.
const (
	// SignatureDefault takes features by name as records of the job have them, or serialized examples under [InputExamples] and its like, and gives the predictions of all heads.
	SignatureDefault = "serving_default"
	// SignatureFeatures takes features by name as parsing makes them: fids of sparse ones, filled up with negative numbers, and final numbers of dense ones.
	SignatureFeatures = "features"
	// SignatureClassify and SignatureRegress are with / and the name of a head behind them: classes and scores of a head of probabilities, the number of one that has one.
	SignatureClassify = "classify"
	SignatureRegress  = "regress"
)

// The inputs of [SignatureDefault] that have serialized examples, by what these are. A request has one of them and nothing else.
const (
	// InputExamples has tf.Examples, with the columns that records of the job have.
	InputExamples = "examples"
	// InputInstances, InputMonolithExamples and InputExampleBatches have Instances, Examples and ExampleBatches of bytedance/monolith (package internal/instance); a batch has any number of rows.
	InputInstances        = "instances"
	InputMonolithExamples = "monolith_examples"
	InputExampleBatches   = "example_batches"
)

// recordInputs are these inputs.
var recordInputs = []string{InputExamples, InputInstances, InputMonolithExamples, InputExampleBatches}

// messageOf is what an input of serialized examples has.
func messageOf(input string) string {
	if input == InputExamples {
		return "tf.Example"
	}
	return kindOf(input).String()
}

// kindOf is that of the messages of bytedance/monolith.
func kindOf(input string) instance.Kind {
	switch input {
	case InputInstances:
		return instance.Instance
	case InputMonolithExamples:
		return instance.Example
	}
	return instance.Batch
}

// The types of tensors (tensorflow/core/framework/types.proto).
const (
	dtFloat  = 1
	dtDouble = 2
	dtInt32  = 3
	dtUint8  = 4
	dtInt16  = 5
	dtInt8   = 6
	dtString = 7
	dtInt64  = 9
	dtBool   = 10
	dtUint16 = 17
	dtUint32 = 22
	dtUint64 = 23
)

// tensorInfo describes an input or output; a size below 0 is any.
type tensorInfo struct {
	name  string
	dtype int
	shape []int64
}

// signature is a way to ask a model.
type signature struct {
	name, method    string
	inputs, outputs []tensorInfo
}

// The methods of signatures (tensorflow/cc/saved_model/signature_constants.h).
const (
	methodPredict  = "tensorflow/serving/predict"
	methodClassify = "tensorflow/serving/classify"
	methodRegress  = "tensorflow/serving/regress"
)

// signatures are those of a version.
func (v *Version) signatures() []signature {
	var outputs []tensorInfo
	for _, h := range v.heads {
		outputs = append(outputs, tensorInfo{h.Name, dtFloat, []int64{-1, int64(h.Width)}})
	}
	features := signature{name: SignatureFeatures, method: methodPredict, outputs: outputs}
	for _, f := range v.in.features {
		if f.Kind == model.Sparse {
			features.inputs = append(features.inputs, tensorInfo{f.Name, dtInt64, []int64{-1, -1}})
		} else {
			features.inputs = append(features.inputs, tensorInfo{f.Name, dtFloat, []int64{-1, int64(max(f.Dim, 1))}})
		}
	}
	if v.in.recipeErr != nil {
		return append([]signature{features}, v.pushSignatures()...)
	}
	raw := signature{name: SignatureDefault, method: methodPredict, outputs: outputs}
	for i := range v.in.recipe.Features {
		f := &v.in.recipe.Features[i]
		dtype := map[ColumnType]int{Ints: dtInt64, Floats: dtFloat, Texts: dtString}[rawType(f)]
		dim := int64(-1)
		if f.Kind == parse.Dense {
			dim = int64(max(f.Dim, 1))
		}
		raw.inputs = append(raw.inputs, tensorInfo{f.Name, dtype, []int64{-1, dim}})
	}
	out := []signature{raw, features}
	examples := []tensorInfo{{"inputs", dtString, []int64{-1}}}
	for i, h := range v.heads {
		if n := int64(len(v.classes[i])); n > 0 {
			out = append(out, signature{
				SignatureClassify + "/" + h.Name, methodClassify, examples,
				[]tensorInfo{{"classes", dtString, []int64{-1, n}}, {"scores", dtFloat, []int64{-1, n}}},
			})
		}
		if h.Width == 1 {
			out = append(out, signature{SignatureRegress + "/" + h.Name, methodRegress, examples, []tensorInfo{{"outputs", dtFloat, []int64{-1, 1}}}})
		}
	}
	return append(out, v.pushSignatures()...)
}

// pushSignatures are those by which rows are pushed to a version that takes them.
func (v *Version) pushSignatures() []signature {
	if _, ok := v.params.(Pushable); !ok {
		return nil
	}
	source := tensorInfo{OutputSource, dtInt64, nil}
	assign := signature{name: SignatureAssign, method: methodPredict}
	for _, t := range v.Model().Graph.Layout().Tables {
		assign.inputs = append(assign.inputs, tensorInfo{t.Name + SuffixIDs, dtInt64, []int64{-1}}, tensorInfo{t.Name + SuffixValues, dtFloat, []int64{-1, int64(t.Dim())}})
		assign.outputs = append(assign.outputs, tensorInfo{t.Name + suffixResult, dtInt32, nil})
	}
	assign.outputs = append(assign.outputs, source)
	return []signature{assign, {
		SignatureRawAssign, methodPredict,
		[]tensorInfo{{InputIDs, dtInt64, []int64{-1}}, {InputIDSplits, dtInt64, []int64{-1}}, {InputFlatValues, dtFloat, []int64{-1}}},
		[]tensorInfo{{"result", dtInt32, nil}, source},
	}}
}

// scores are those of the classes of a head in an answer, [rows, classes]: of one probability what is missing to 1 and it.
func (v *Version) scores(a *answer, head int) []float32 {
	values := a.heads[head]
	if v.heads[head].Width > 1 {
		return values
	}
	out := make([]float32, 0, 2*len(values))
	for _, p := range values {
		out = append(out, 1-p, p)
	}
	return out
}

// headOf finds the head that a classification or regression is asked of: by the signature's name, or without one the only one that fits.
func (v *Version) headOf(kind, name string) (int, error) {
	var fits []string
	at := map[string]int{}
	for i, h := range v.heads {
		if kind == SignatureClassify && v.classes[i] == nil || kind == SignatureRegress && h.Width != 1 {
			continue
		}
		full := kind + "/" + h.Name
		fits = append(fits, full)
		at[full] = i
	}
	switch i, ok := at[name]; {
	case ok:
		return i, nil
	case name != "" && name != SignatureDefault && name != kind:
		return 0, invalid("the model has no signature %q to %s with%s", name, kind, nearest.Suggest(name, fits))
	case len(fits) == 0:
		return 0, refuse(codes.Unimplemented, "no head of the model can %s: that takes one number, and to classify probabilities; predict", kind)
	case len(fits) > 1:
		return 0, invalid("the model has several heads to %s with: name a signature, %s", kind, strings.Join(fits, " or "))
	}
	return at[fits[0]], nil
}

// predictForm is the form of named inputs of a signature.
func (v *Version) predictForm(name string) (Form, error) {
	names := []string{SignatureDefault, SignatureFeatures}
	switch name {
	case "", SignatureDefault:
		return FormColumns, nil
	case SignatureFeatures:
		return FormFeatures, nil
	}
	return 0, invalid("the model has no signature %q to predict with%s", name, nearest.Suggest(name, names))
}

// recordInput is the input of serialized examples that a request of n inputs has: one of a name that is no feature's; empty: none.
func (v *Version) recordInput(form Form, has func(string) bool, n int) string {
	if form != FormColumns || n != 1 {
		return ""
	}
	for _, name := range recordInputs {
		if has(name) && !slices.Contains(v.in.raw, name) {
			return name
		}
	}
	return ""
}

// readRecords makes the examples of an input that has serialized ones.
func (v *Version) readRecords(input string, list [][]byte, l limits) (*Input, error) {
	in := &Input{Form: FormExample, Records: list}
	if input == InputExamples {
		return in, nil
	}
	in.Records = nil
	for i, b := range list {
		err := v.in.own.Rows(kindOf(input), b, func(rows int) error { return l.count(len(in.Records) + rows) }, func(record []byte) error {
			in.Records = append(in.Records, record)
			return l.spend(len(record))
		})
		if _, limited := status.FromError(err); err != nil && !limited {
			err = invalid("%s %d: %v", messageOf(input), i, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return in, nil
}

// parseVersion reads the number of a version.
func parseVersion(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid("version %q is no number from 0", text)
	}
	return n, nil
}
