package instance_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/instance"
)

// schema are upstream's messages: a field is name=number type, with r for repeated and o for one of the message's oneof. The syntax is proto2, where names may be any bytes; the wire format is the same.
var schema = map[string]string{
	"FidList": "value=1 r fixed64", "FloatList": "value=1 r float", "DoubleList": "value=1 r double", "Int64List": "value=1 r int64", "BytesList": "value=1 r bytes",
	"FidLists": "list=1 r FidList", "FloatLists": "list=1 r FloatList", "DoubleLists": "list=1 r DoubleList", "Int64Lists": "list=1 r Int64List", "BytesLists": "list=1 r BytesList",
	"Feature": "fid_v1_list=1 o FidList, fid_v2_list=2 o FidList, float_list=3 o FloatList, double_list=4 o DoubleList, int64_list=5 o Int64List, bytes_list=6 o BytesList, fid_v2_lists=7 o FidLists, " +
		"float_lists=8 o FloatLists, double_lists=9 o DoubleLists, int64_lists=10 o Int64Lists, bytes_lists=11 o BytesLists, int64_value=12 o int64, float_value=13 o float, double_value=14 o double, " +
		"bytes_value=15 o bytes, fid_v1_lists=16 o FidLists",
	"NamedFeature": "name=1 bytes, feature=2 Feature, id=3 int32, sorted_id=6 int32", "Example": "named_feature=1 r NamedFeature, label=101 r float",
	"NamedFeatureList": "name=1 bytes, feature=2 r Feature, type=3 int32, id=4 int32", "ExampleBatch": "named_feature_list=1 r NamedFeatureList, batch_size=3 int32",
	"InstanceFeature": "name=1 bytes, fid=2 r fixed64, float_value=3 r float, int64_value=4 r int64, bytes_value=5 r bytes, fid_list=6 r FidList, float_list=7 r FloatList, int64_list=8 r Int64List, " +
		"bytes_list=9 r BytesList",
	"Instance": "fid=1 r fixed64, value=2 r float, label=3 r float, feature=9 r InstanceFeature",
}

// messages builds the descriptors of the schema.
func messages(tb testing.TB) protoreflect.MessageDescriptors {
	tb.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: new("upstream.proto"), Package: new("up"), Syntax: new("proto2")}
	types := map[string]descriptorpb.FieldDescriptorProto_Type{
		"fixed64": descriptorpb.FieldDescriptorProto_TYPE_FIXED64, "float": descriptorpb.FieldDescriptorProto_TYPE_FLOAT, "double": descriptorpb.FieldDescriptorProto_TYPE_DOUBLE,
		"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "int32": descriptorpb.FieldDescriptorProto_TYPE_INT32, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	}
	for name, fields := range schema {
		m := &descriptorpb.DescriptorProto{Name: &name}
		for text := range strings.SplitSeq(fields, ", ") {
			words := strings.Fields(text)
			title, number, _ := strings.Cut(words[0], "=")
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil {
				tb.Fatal(err)
			}
			of := words[len(words)-1]
			f := &descriptorpb.FieldDescriptorProto{Name: &title, Number: new(int32(n)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
			if typ, ok := types[of]; ok {
				f.Type = &typ
			} else {
				f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), new(".up."+of)
			}
			switch words[1] {
			case "r":
				f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
				if of != "bytes" && f.GetTypeName() == "" {
					f.Options = &descriptorpb.FieldOptions{Packed: new(len(m.Field)%2 == 0)} // both are read
				}
			case "o":
				f.OneofIndex = new(int32(0))
				m.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: new("type")}}
			}
			m.Field = append(m.Field, f)
		}
		file.MessageType = append(file.MessageType, m)
	}
	fd, err := protodesc.NewFile(file, new(protoregistry.Files))
	if err != nil {
		tb.Fatal(err)
	}
	return fd.Messages()
}

// wanted are the columns of the tests.
var wanted = &instance.Columns{
	Names: map[string]bool{"user": true, "item": true, "ü": true},
	Slots: map[int][]string{1: {"user"}, 7: {"item"}, 9: {"a", "b"}},
}

// row is a row as plain values, by name.
type row map[string]any

var errOracle = errors.New("the oracle refuses it")

// oracle reads a message through protobuf-go and a descriptor, with the definitions written out.
func oracle(of protoreflect.MessageDescriptor, kind instance.Kind, b []byte) (rows []row, err error) {
	m := dynamicpb.NewMessage(of)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	field := func(m protoreflect.Message, name string) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
	}
	each := func(l protoreflect.List, f func(protoreflect.Value)) {
		for i := range l.Len() {
			f(l.Get(i))
		}
	}
	numbers := func(l protoreflect.List, name string) any {
		var ints []int64
		var floats []uint32
		var texts []string
		each(l, func(v protoreflect.Value) {
			switch x := v.Interface().(type) {
			case uint64: // an id
				if name != "v1" && int64(x) < 0 {
					err = errOracle
				}
				ints = append(ints, int64(x%(1<<48)))
			case int64:
				ints = append(ints, x)
			case float32:
				floats = append(floats, bits(x))
			case float64:
				floats = append(floats, bits(float32(x)))
			case []byte:
				texts = append(texts, string(x))
			}
		})
		switch {
		case ints != nil:
			return ints
		case floats != nil:
			return floats
		case texts != nil:
			return texts
		}
		return nil
	}
	put := func(r row, name string, x any) {
		if x != nil && wanted.Names[name] {
			r[name] = x
		}
	}
	feature := func(f protoreflect.Message) any {
		which := f.WhichOneof(f.Descriptor().Oneofs().ByName("type"))
		if which == nil {
			return nil
		}
		name := string(which.Name())
		switch {
		case strings.HasSuffix(name, "_lists"):
			err = errOracle
			return nil
		case strings.HasSuffix(name, "_list"):
			version, _, _ := strings.Cut(strings.TrimPrefix(name, "fid_"), "_")
			return numbers(field(f.Get(which).Message(), "value").List(), version)
		}
		switch x := f.Get(which).Interface().(type) {
		case int64:
			return []int64{x}
		case float32:
			return []uint32{bits(x)}
		case float64:
			return []uint32{bits(float32(x))}
		default:
			return []string{string(x.([]byte))}
		}
	}
	switch kind {
	case instance.Example:
		r := row{}
		each(field(m, "named_feature").List(), func(v protoreflect.Value) {
			name := string(field(v.Message(), "name").Bytes())
			if wanted.Names[name] { // the last one counts that has a value
				put(r, name, feature(field(v.Message(), "feature").Message()))
			}
		})
		return []row{r}, err
	case instance.Batch:
		size := int(field(m, "batch_size").Int())
		if size < 0 || size > 100 {
			return nil, errOracle
		}
		if size == 0 {
			return nil, nil
		}
		for range size {
			rows = append(rows, row{})
		}
		seen := map[string]bool{}
		each(field(m, "named_feature_list").List(), func(v protoreflect.Value) {
			name, list, shared := string(field(v.Message(), "name").Bytes()), field(v.Message(), "feature").List(), field(v.Message(), "type").Int() == 1
			if !wanted.Names[name] {
				return
			}
			if seen[name] || shared && list.Len() == 0 || !shared && list.Len() != size {
				err = errOracle
				return
			}
			seen[name] = true
			for i, r := range rows {
				at := i
				if shared {
					at = 0
				}
				put(r, name, feature(list.Get(at).Message()))
			}
		})
		return rows, err
	}
	r := row{}
	each(field(m, "feature").List(), func(v protoreflect.Value) {
		f := v.Message()
		name := string(field(f, "name").Bytes())
		if !wanted.Names[name] {
			return
		}
		for _, id := range []string{"fid", "float_value", "int64_value", "bytes_value"} {
			x := numbers(field(f, id).List(), "v2")
			if x != nil {
				put(r, name, x)
				return
			}
		}
		for _, list := range []string{"fid_list", "float_list", "int64_list", "bytes_list"} {
			if field(f, list).List().Len() > 0 {
				err = errOracle
			}
		}
	})
	flat := row{}
	each(field(m, "fid").List(), func(v protoreflect.Value) {
		id := v.Uint()
		switch id >> 54 {
		case 1:
			flat["user"] = append(ints(flat["user"]), int64(id%(1<<48)))
		case 7:
			flat["item"] = append(ints(flat["item"]), int64(id%(1<<48)))
		case 9:
			err = errOracle
		}
	})
	maps.Copy(r, flat) // they are written last
	return []row{r}, err
}

func ints(x any) []int64 { list, _ := x.([]int64); return list }

// bits distinguishes floats but not one NaN from another.
func bits(f float32) uint32 {
	if f != f {
		f = float32(math.NaN())
	}
	return math.Float32bits(f)
}

// read reads a message as the package does, and the tf.Examples with the package of these.
func read(kind instance.Kind, b []byte) (rows []row, err error) {
	counted := 0
	err = wanted.Rows(kind, b, func(n int) error {
		if counted = n; n > 100 {
			return errOracle
		}
		return nil
	}, func(record []byte) error {
		features, err := example.All(record)
		if err != nil {
			return fmt.Errorf("what was written is no tf.Example: %w", err)
		}
		r := row{}
		for name, v := range features {
			switch v.Kind {
			case example.Int64:
				r[name], err = v.AppendInt64s(nil)
			case example.Float:
				list, e := v.AppendFloats(nil)
				var out []uint32
				for _, f := range list {
					out = append(out, bits(f))
				}
				r[name], err = out, e
			case example.Bytes:
				list, e := v.AppendBytes(nil)
				var out []string
				for _, f := range list {
					out = append(out, string(f))
				}
				r[name], err = out, e
			}
			if err != nil {
				return err
			}
		}
		rows = append(rows, r)
		return nil
	})
	if err == nil && counted != len(rows) {
		err = fmt.Errorf("%d rows are counted, and %d written", counted, len(rows))
	}
	return rows, err
}

// random fills a message.
func random(rng *rand.Rand, m protoreflect.Message, names []string) {
	chosen := rng.IntN(m.Descriptor().Fields().Len()) // of a oneof
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if f.ContainingOneof() != nil && (i != chosen || strings.HasSuffix(string(f.Name()), "lists") && rng.IntN(8) > 0) || rng.IntN(8) == 0 {
			continue
		}
		one := func() protoreflect.Value {
			switch f.Kind() {
			case protoreflect.MessageKind:
				x := m.NewField(f)
				if f.IsList() {
					x = x.List().NewElement()
				}
				random(rng, x.Message(), names)
				return x
			case protoreflect.Fixed64Kind:
				return protoreflect.ValueOfUint64([]uint64{1 << 54, 7 << 54, 3 << 54, 0}[rng.IntN(4)] | uint64(rng.IntN(100)) | uint64(rng.IntN(2))<<50)
			case protoreflect.FloatKind:
				return protoreflect.ValueOfFloat32(rng.Float32())
			case protoreflect.DoubleKind:
				return protoreflect.ValueOfFloat64(rng.NormFloat64())
			case protoreflect.Int64Kind:
				return protoreflect.ValueOfInt64(rng.Int64() >> rng.IntN(64))
			case protoreflect.Int32Kind:
				return protoreflect.ValueOfInt32(rng.Int32N(3))
			}
			if f.Name() == "name" {
				return protoreflect.ValueOfBytes([]byte(names[rng.IntN(len(names))]))
			}
			return protoreflect.ValueOfBytes([]byte(fmt.Sprint(rng.IntN(100))))
		}
		if !f.IsList() {
			m.Set(f, one())
			continue
		}
		for l := m.Mutable(f).List(); rng.IntN(3) > 0; {
			l.Append(one())
		}
	}
}

var kinds = []struct {
	kind instance.Kind
	name protoreflect.Name
}{{instance.Instance, "Instance"}, {instance.Example, "Example"}, {instance.Batch, "ExampleBatch"}}

// compare reads a message in both ways, and reports whether the oracle reads it.
func compare(t *testing.T, of protoreflect.MessageDescriptor, kind instance.Kind, b []byte) bool {
	t.Helper()
	want, oracleErr := oracle(of, kind, b)
	got, err := read(kind, b)
	switch {
	case oracleErr == nil && err != nil:
		t.Fatalf("%s %x is refused: %v", kind, b, err)
	case errors.Is(oracleErr, errOracle) && err == nil:
		t.Fatalf("%s %x is read as %v", kind, b, got)
	case oracleErr == nil:
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Fatalf("%s %x (-protobuf +ours):\n%s", kind, b, diff)
		}
	}
	return oracleErr == nil
}

// TestRows reads random messages as a protobuf library reads them.
func TestRows(t *testing.T) {
	t.Parallel()
	all := messages(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range kinds {
		of := all.ByName(k.name)
		good, values := 0, 0
		for range 1000 {
			m := dynamicpb.NewMessage(of)
			random(rng, m, []string{"user", "item", "ü", "other", "more", "x"})
			if k.kind == instance.Batch { // as many values as rows
				size := m.Get(of.Fields().ByName("batch_size")).Int()
				lists := m.Get(of.Fields().ByName("named_feature_list")).List()
				for i := range lists.Len() {
					list := lists.Get(i).Message()
					features := list.Mutable(list.Descriptor().Fields().ByName("feature")).List()
					for int64(features.Len()) < size {
						features.Append(features.NewElement())
					}
					features.Truncate(int(size))
				}
			}
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if compare(t, of, k.kind, b) {
				good++
				if rows, err := read(k.kind, b); err == nil && len(rows) > 0 && len(rows[0]) > 0 {
					values++
				}
			}
		}
		if good < 200 || values < 30 {
			t.Errorf("%d of the random messages of %s are good, %d of them with values", good, k.kind, values)
		}
	}
}

// TestFaults says what is wrong.
func TestFaults(t *testing.T) {
	t.Parallel()
	all := messages(t)
	text := func(name protoreflect.Name, fill func(m *dynamicpb.Message)) []byte {
		m := dynamicpb.NewMessage(all.ByName(name))
		fill(m)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	field := func(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
		return m.Descriptor().Fields().ByName(name)
	}
	list := func(size int32, shared int32, features int) []byte {
		return text("ExampleBatch", func(m *dynamicpb.Message) {
			m.Set(field(m, "batch_size"), protoreflect.ValueOfInt32(size))
			of := m.Mutable(field(m, "named_feature_list")).List().AppendMutable().Message()
			of.Set(field(of, "name"), protoreflect.ValueOfBytes([]byte("user")))
			of.Set(field(of, "type"), protoreflect.ValueOfInt32(shared))
			for range features {
				of.Mutable(field(of, "feature")).List().AppendMutable()
			}
		})
	}
	flat := func(id uint64) []byte {
		return text("Instance", func(m *dynamicpb.Message) {
			m.Mutable(field(m, "fid")).List().Append(protoreflect.ValueOfUint64(id))
		})
	}
	named := func(oneof protoreflect.Name, id uint64) []byte {
		return text("Example", func(m *dynamicpb.Message) {
			of := m.Mutable(field(m, "named_feature")).List().AppendMutable().Message()
			of.Set(field(of, "name"), protoreflect.ValueOfBytes([]byte("user")))
			f := of.Mutable(field(of, "feature")).Message()
			l := f.Mutable(field(f, oneof)).Message()
			if id != 0 {
				l.Mutable(field(l, "value")).List().Append(protoreflect.ValueOfUint64(id))
			}
		})
	}
	for _, c := range []struct {
		kind instance.Kind
		b    []byte
		says string
	}{
		{instance.Batch, list(3, 0, 2), `feature "user" has 2 values, batch_size is 3`},
		{instance.Batch, list(3, 1, 0), `feature "user" is said to be shared by all rows, and has no value`},
		{instance.Batch, append(list(1, 0, 1), list(1, 0, 1)...), `feature "user" is there twice`},
		{instance.Batch, list(-1, 0, 1), "batch_size is -1"},
		{instance.Instance, flat(9 << 54), "which is that of the features a and b: send it by name"},
		{instance.Example, named("float_lists", 0), `feature "user" is a list of lists`},
		{instance.Example, named("fid_v2_list", 1<<63), `feature "user": id -9223372036854775808 is negative`},
		{instance.Example, []byte{0xff}, "unexpected EOF"},
	} {
		if _, err := read(c.kind, c.b); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %x: %v; want one that says %q", c.kind, c.b, err, c.says)
		}
	}
	if err := wanted.Rows(instance.Batch, list(1<<30, 1, 1), func(n int) error {
		if n == 1<<30 {
			return errOracle
		}
		return nil
	}, func([]byte) error { return nil }); !errors.Is(err, errOracle) {
		t.Errorf("rows that are too many: %v", err)
	}
}

// FuzzRows: whatever the bytes, they are read as a protobuf library reads them, or refused.
func FuzzRows(f *testing.F) {
	all := messages(f)
	rng := rand.New(rand.NewPCG(3, 4))
	for i, k := range kinds {
		for range 20 {
			m := dynamicpb.NewMessage(all.ByName(k.name))
			random(rng, m, []string{"user", "item"})
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		k := kinds[int(kind)%len(kinds)]
		compare(t, all.ByName(k.name), k.kind, b)
	})
}
