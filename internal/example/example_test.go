package example_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/monolith-go/monolith/internal/example"
)

// list is a feature as plain values, for comparisons.
type list struct {
	Kind   example.Kind
	Ints   []int64
	Floats []uint32 // bits, so that NaN equals NaN
	Bytes  []string
}

// oracle reads tf.Example through protobuf-go and a descriptor of its own. The syntax is proto2, where names may be any
// bytes; the wire format is the same.
type oracle struct {
	example  protoreflect.MessageDescriptor
	features protoreflect.FieldDescriptor
	feature  protoreflect.FieldDescriptor
}

func newOracle(tb testing.TB) *oracle {
	tb.Helper()
	field := func(name string, num int32, typ descriptorpb.FieldDescriptorProto_Type, repeated bool, of string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &num, Type: &typ, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		if repeated {
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	message := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
	}
	const (
		typeBytes, typeFloat  = descriptorpb.FieldDescriptorProto_TYPE_BYTES, descriptorpb.FieldDescriptorProto_TYPE_FLOAT
		typeInt64, typeString = descriptorpb.FieldDescriptorProto_TYPE_INT64, descriptorpb.FieldDescriptorProto_TYPE_STRING
		typeMessage           = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	)
	feature := message("Feature",
		field("bytes_list", 1, typeMessage, false, ".tf.BytesList"),
		field("float_list", 2, typeMessage, false, ".tf.FloatList"),
		field("int64_list", 3, typeMessage, false, ".tf.Int64List"))
	feature.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: new("kind")}}
	for _, f := range feature.Field {
		f.OneofIndex = new(int32(0))
	}
	entry := message("FeatureEntry", field("key", 1, typeString, false, ""), field("value", 2, typeMessage, false, ".tf.Feature"))
	entry.Options = &descriptorpb.MessageOptions{MapEntry: new(true)}
	features := message("Features", field("feature", 1, typeMessage, true, ".tf.Features.FeatureEntry"))
	features.NestedType = []*descriptorpb.DescriptorProto{entry}
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("tf.proto"), Package: new("tf"), Syntax: new("proto2"),
		MessageType: []*descriptorpb.DescriptorProto{
			message("BytesList", field("value", 1, typeBytes, true, "")),
			message("FloatList", field("value", 1, typeFloat, true, "")),
			message("Int64List", field("value", 1, typeInt64, true, "")),
			feature, features,
			message("Example", field("features", 1, typeMessage, false, ".tf.Features")),
		},
	}, new(protoregistry.Files))
	if err != nil {
		tb.Fatal(err)
	}
	o := &oracle{example: fd.Messages().ByName("Example")}
	o.features = o.example.Fields().ByName("features")
	o.feature = o.features.Message().Fields().ByName("feature")
	return o
}

func (o *oracle) parse(record []byte) (_ map[string]list, err error) {
	// protobuf-go 1.36 panics on a dynamic map entry whose key has another wire type; such a record is not judged.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("protobuf: %v", r)
		}
	}()
	m := dynamicpb.NewMessage(o.example)
	if err := proto.Unmarshal(record, m); err != nil {
		return nil, err
	}
	out := map[string]list{}
	for key, v := range m.Get(o.features).Message().Get(o.feature).Map().Range {
		f := v.Message()
		which := f.WhichOneof(f.Descriptor().Oneofs().ByName("kind"))
		if which == nil {
			out[key.String()] = list{}
			continue
		}
		l := list{Kind: example.Kind(which.Number())}
		values := f.Get(which).Message()
		vs := values.Get(values.Descriptor().Fields().ByName("value")).List()
		for i := range vs.Len() {
			switch l.Kind {
			case example.Bytes:
				l.Bytes = append(l.Bytes, string(vs.Get(i).Bytes()))
			case example.Float:
				l.Floats = append(l.Floats, floatBits(float32(vs.Get(i).Float())))
			case example.Int64:
				l.Ints = append(l.Ints, vs.Get(i).Int())
			}
		}
		out[key.String()] = l
	}
	return out, nil
}

// floatBits distinguishes floats but not one NaN from another, of which the oracle changes some.
func floatBits(f float32) uint32 {
	if f != f {
		f = float32(math.NaN())
	}
	return math.Float32bits(f)
}

// scan reads a record with the scanner and takes all lists apart.
func scan(s *example.Scanner, names []string, record []byte) (map[string]list, error) {
	values, err := s.Scan(record)
	if err != nil {
		return nil, err
	}
	out := map[string]list{}
	for i, v := range values {
		l, err := takeApart(v)
		if err != nil {
			return nil, err
		}
		out[names[i]] = l
	}
	return out, nil
}

func takeApart(v example.Value) (l list, err error) {
	l.Kind = v.Kind
	switch v.Kind {
	case example.Bytes:
		var bs [][]byte
		bs, err = v.AppendBytes(nil)
		for _, b := range bs {
			l.Bytes = append(l.Bytes, string(b))
		}
	case example.Float:
		var fs []float32
		fs, err = v.AppendFloats(nil)
		for _, f := range fs {
			l.Floats = append(l.Floats, floatBits(f))
		}
	case example.Int64:
		l.Ints, err = v.AppendInt64s(nil)
	}
	return l, err
}

var names = []string{"user", "item", "a_rather_long_feature_name", "price", "ü", "x"}

// check compares scanner and oracle on one record.
func check(t *testing.T, o *oracle, s *example.Scanner, record []byte) {
	t.Helper()
	want, pbErr := o.parse(record)
	got, err := scan(s, names, record)
	if pbErr != nil {
		// The scanner does not look into other features and into lists that a later one replaces, so it may accept
		// what protobuf does not; but never the other way round.
		return
	}
	if err != nil {
		t.Fatalf("protobuf reads %x, the scanner says %v", record, err)
	}
	for _, name := range names {
		if diff := cmp.Diff(want[name], got[name]); diff != "" {
			t.Fatalf("%q of %x (-protobuf +scanner):\n%s", name, record, diff)
		}
	}
	all, err := example.All(record)
	if err != nil {
		t.Fatalf("protobuf reads %x, All says %v", record, err)
	}
	listed := map[string]list{}
	for name, v := range all {
		if listed[name], err = takeApart(v); err != nil {
			t.Fatalf("%q of %x: %v", name, record, err)
		}
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Fatalf("all of %x (-protobuf +All):\n%s", record, diff)
	}
}

func field(num protowire.Number, contents ...[]byte) []byte {
	b := protowire.AppendTag(nil, num, protowire.BytesType)
	return protowire.AppendBytes(b, slices.Concat(contents...))
}

// longTag is [field] with a tag of one byte more than it needs.
func longTag(num protowire.Number, contents []byte) []byte {
	b := field(num, contents)
	return slices.Concat([]byte{b[0] | 0x80, 0}, b[1:])
}

func varints(tagged bool, vs ...uint64) []byte {
	var b []byte
	for _, v := range vs {
		if tagged {
			b = append(b, 1<<3)
		}
		b = protowire.AppendVarint(b, v)
	}
	return b
}

// oddRecords are legal in ways that no encoder uses.
func oddRecords() map[string][]byte {
	ints := func(vs ...uint64) []byte { return field(3, field(1, varints(false, vs...))) }
	entry := func(parts ...[]byte) []byte { return field(1, field(1, parts...)) }
	key := func(s string) []byte { return field(1, []byte(s)) }
	unknown := slices.Concat(protowire.AppendTag(nil, 9, protowire.VarintType), []byte{5},
		protowire.AppendTag(nil, 10, protowire.Fixed64Type), make([]byte, 8),
		protowire.AppendTag(nil, 11, protowire.StartGroupType), []byte{1 << 3, 7}, protowire.AppendTag(nil, 11, protowire.EndGroupType))
	big := []uint64{math.MaxUint64, 1 << 63, 1<<63 - 1, 1 << 56, 1<<56 - 1, 1<<49 + 3, 127, 128, 0}
	return map[string][]byte{
		"empty":               nil,
		"plain":               entry(key("user"), field(2, ints(1, 2, 300))),
		"value before key":    entry(field(2, ints(4)), key("user")),
		"key twice":           entry(key("user"), field(2, ints(4)), key("item")),
		"value twice":         entry(key("user"), field(2, ints(4)), field(2, ints(5, 6))),
		"no key":              entry(field(2, ints(4))),
		"no value":            entry(key("user")),
		"value removed":       slices.Concat(entry(key("user"), field(2, ints(4))), entry(key("user"))),
		"last entry wins":     slices.Concat(entry(key("x"), field(2, ints(4))), entry(key("x"), field(2, field(1, field(1, []byte("s")))))),
		"kind replaced":       entry(key("x"), field(2, ints(4), field(2, field(1, []byte{0, 0, 128, 63})), ints(9))),
		"list in pieces":      entry(key("x"), field(2, ints(4), ints(5), ints())),
		"two odd entries":     slices.Concat(entry(key("x"), field(2, ints(1), ints(2))), entry(key("user"), field(2, ints(3), ints(4)))),
		"unpacked":            entry(key("x"), field(2, field(3, varints(true, 1, 2, math.MaxUint64)))),
		"mixed packing":       entry(key("x"), field(2, field(3, varints(true, 1), field(1, varints(false, 2, 3)), varints(true, 4)))),
		"unpacked floats":     entry(key("price"), field(2, field(2, []byte{13, 0, 0, 128, 63}, field(1, []byte{0, 0, 0, 64})))),
		"unknown fields":      slices.Concat(unknown, field(1, unknown, field(1, unknown, key("x"), field(2, unknown, field(3, unknown, field(1, varints(false, big...)), unknown))))),
		"wrong wire types":    slices.Concat([]byte{1 << 3, 3}, field(1, []byte{1 << 3, 3}, field(1, []byte{1 << 3, 3, 2 << 3, 4}, key("x"), field(2, []byte{3 << 3, 1}, ints(8))))),
		"two features fields": slices.Concat(entry(key("x"), field(2, ints(1))), entry(key("user"), field(2, ints(2)))),
		"long tags":           longTag(1, longTag(1, slices.Concat(longTag(1, []byte("x")), longTag(2, longTag(3, longTag(1, varints(false, 5, 6))))))),
		"empty bytes":         entry(key("x"), field(2, field(1, field(1), field(1, []byte("a")), field(1)))),
		"big varints":         entry(key("ü"), field(2, field(3, field(1, varints(false, big...), varints(false, 0, 0, 0, 0, 0, 0, 0, 0, 0))))),
		"overlong varint":     entry(key("x"), field(2, field(3, field(1, []byte{0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00})))),
	}
}

func TestScannerOddRecords(t *testing.T) {
	t.Parallel()
	o, s := newOracle(t), newScanner(t)
	for name, record := range oddRecords() {
		t.Run(name, func(t *testing.T) {
			if _, err := o.parse(record); err != nil {
				t.Fatalf("protobuf rejects the record, which is meant to be legal: %v", err)
			}
			check(t, o, s, record)
		})
	}
}

func newScanner(tb testing.TB) *example.Scanner {
	tb.Helper()
	s, err := example.NewScanner(names)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Cut anywhere, a record of one declared feature is malformed for both, or both read the same.
func TestScannerTruncated(t *testing.T) {
	t.Parallel()
	o, s := newOracle(t), newScanner(t)
	var e example.Encoder
	e.Int64s("user", 1, -1, 1<<40)
	e.Floats("price", 1.5, float32(math.NaN()))
	e.Strings("x", "", "abc")
	record := e.Append(nil)
	for n := range record {
		_, pbErr := o.parse(record[:n])
		got, err := scan(s, names, record[:n])
		if (err != nil) != (pbErr != nil) {
			t.Errorf("first %d bytes: scanner %v (%v), protobuf %v", n, err, got, pbErr)
		}
		if _, ok := errors.AsType[*example.MalformedError](err); err != nil && !ok {
			t.Errorf("first %d bytes: %T is not a MalformedError", n, err)
		}
	}
}

func TestScannerMalformed(t *testing.T) {
	t.Parallel()
	wrap := func(list []byte) []byte { return field(1, field(1, field(1, []byte("x")), field(2, list))) }
	for name, record := range map[string][]byte{
		"length beyond the end":  {tagMessage, 200},
		"length near 2^64":       {tagMessage, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"field number 0":         {0x02, 0x00},
		"lone end of group":      {9<<3 | 4},
		"varint of 11 bytes":     wrap(field(3, field(1, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}))),
		"varint above 64 bits":   wrap(field(3, field(1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}))),
		"varint open at the end": wrap(field(3, field(1, []byte{0x80}))),
		"packed floats of 3":     wrap(field(2, field(1, []byte{1, 2, 3}))),
		"bytes beyond the list":  wrap(field(1, []byte{tagMessage, 9, 'a'})),
		"unpacked float cut":     wrap(field(2, []byte{13, 1, 2})),
		"text":                   []byte("user,item,label"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := newOracle(t).parse(record); err == nil {
				t.Fatal("protobuf accepts the record, which is meant to be malformed")
			}
			_, err := scan(newScanner(t), names, record)
			if _, ok := errors.AsType[*example.MalformedError](err); !ok {
				t.Errorf("error is %v, want a MalformedError", err)
			}
		})
	}
}

const tagMessage = 1<<3 | 2

func TestNewScannerFaults(t *testing.T) {
	t.Parallel()
	if _, err := example.NewScanner([]string{"a", "b", "a"}); err == nil {
		t.Error("a name twice is accepted")
	}
	if _, err := example.NewScanner(make([]string, 1<<15)); err == nil {
		t.Error("32768 names are accepted")
	}
	s, err := example.NewScanner(nil)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Scan(oddRecords()["plain"]); err != nil || len(v) != 0 {
		t.Errorf("a scanner without names finds %v, %v", v, err)
	}
}

// Many names share the table; every one is found and no other.
func TestScannerNames(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("f%d", i), fmt.Sprintf("feature_number_%04d_of_many", i))
	}
	s, err := example.NewScanner(all)
	if err != nil {
		t.Fatal(err)
	}
	var e example.Encoder
	for i, name := range all {
		e.Int64s(name, int64(i))
		e.Int64s(name+"_not", -1)
	}
	values, err := s.Scan(e.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if got, err := v.AppendInt64s(nil); err != nil || len(got) != 1 || got[0] != int64(i) {
			t.Fatalf("%s is %v, %v", all[i], got, err)
		}
	}
}

// What the encoder writes, protobuf reads; and what protobuf writes, the scanner reads.
func TestEncoder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	o, s := newOracle(t), newScanner(t)
	var e example.Encoder
	var buf []byte
	for range 500 {
		want := map[string]list{}
		for _, name := range names {
			l := list{Kind: example.Kind(rng.IntN(4))}
			for range rng.IntN(5) {
				switch l.Kind {
				case example.Bytes:
					l.Bytes = append(l.Bytes, string(make([]byte, rng.IntN(200))))
				case example.Float:
					l.Floats = append(l.Floats, math.Float32bits(rng.Float32()))
				case example.Int64:
					l.Ints = append(l.Ints, int64(rng.Uint64()>>rng.IntN(64)))
				}
			}
			switch l.Kind {
			case example.None:
				continue
			case example.Bytes:
				e.Strings(name, l.Bytes...)
			case example.Float:
				fs := make([]float32, len(l.Floats))
				for i, b := range l.Floats {
					fs[i] = math.Float32frombits(b)
				}
				e.Floats(name, fs...)
			case example.Int64:
				e.Int64s(name, l.Ints...)
			}
			want[name] = l
		}
		before := len(buf)
		buf = e.Append(buf)
		record := buf[before:]
		got, err := o.parse(record)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("encoded and read by protobuf (-want +got):\n%s", diff)
		}
		check(t, o, s, record)
		m := dynamicpb.NewMessage(o.example)
		if err := proto.Unmarshal(record, m); err != nil {
			t.Fatal(err)
		}
		again, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		check(t, o, s, again)
	}
}

func FuzzScanner(f *testing.F) {
	for _, record := range slices.Sorted(maps.Keys(oddRecords())) {
		f.Add(oddRecords()[record])
	}
	var e example.Encoder
	e.Int64s("user", 1, -1, 1<<40)
	e.Floats("price", 1.5)
	e.Bytes("x", []byte("abc"), nil)
	f.Add(e.Append(nil))
	o, s := newOracle(f), newScanner(f)
	f.Fuzz(func(t *testing.T, record []byte) { check(t, o, s, record) })
}

func TestNoAllocations(t *testing.T) {
	s := newScanner(t)
	var e example.Encoder
	var record []byte
	ints := make([]int64, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		e.Int64s("user", 1, -1, 1<<40)
		e.Floats("price", 1.5)
		e.Strings("x", "abc")
		record = e.Append(record[:0])
		values, err := s.Scan(record)
		if err != nil {
			t.Error(err)
			return
		}
		ints, err = values[0].AppendInt64s(ints[:0])
		if err != nil || len(ints) != 3 {
			t.Error(ints, err)
		}
	}); n != 0 {
		t.Errorf("a record costs %v allocations", n)
	}
}

func TestKindString(t *testing.T) {
	t.Parallel()
	for k, want := range map[example.Kind]string{
		example.None: "none", example.Bytes: "bytes_list", example.Float: "float_list", example.Int64: "int64_list", 9: "kind 9",
	} {
		if got := k.String(); got != want {
			t.Errorf("kind %d is %q", k, got)
		}
	}
}

// Records of 30 features, 26 of int64 and 4 of float: 20 single values, 6 lists of 0 to 19, in any order.
func benchRecords(n int) (names []string, records [][]byte, size int64) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 30 {
		kind := "int"
		if i >= 26 {
			kind = "float"
		}
		names = append(names, fmt.Sprintf("%s_feature_%02d", kind, i))
	}
	var e example.Encoder
	for range n {
		for _, i := range rng.Perm(30) {
			if i >= 26 {
				e.Floats(names[i], rng.Float32())
				continue
			}
			ints := make([]int64, 1)
			if i >= 20 {
				ints = make([]int64, rng.IntN(20))
			}
			for k := range ints {
				ints[k] = int64(rng.Uint64() >> 1)
				if i%2 == 1 {
					ints[k] >>= 43
				}
			}
			e.Int64s(names[i], ints...)
		}
		records = append(records, e.Append(nil))
		size += int64(len(records[len(records)-1]))
	}
	return names, records, size
}

func BenchmarkScan(b *testing.B) {
	names, records, size := benchRecords(2048)
	s, err := example.NewScanner(names)
	if err != nil {
		b.Fatal(err)
	}
	ints, floats := make([]int64, 0, 64), make([]float32, 0, 64)
	b.ReportAllocs()
	b.SetBytes(size)
	for b.Loop() {
		for _, r := range records {
			values, err := s.Scan(r)
			if err != nil {
				b.Fatal(err)
			}
			for _, v := range values {
				if v.Kind == example.Int64 {
					ints, err = v.AppendInt64s(ints[:0])
				} else {
					floats, err = v.AppendFloats(floats[:0])
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(records))/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkProtobuf(b *testing.B) {
	_, records, size := benchRecords(256)
	o := newOracle(b)
	b.ReportAllocs()
	b.SetBytes(size)
	for b.Loop() {
		for _, r := range records {
			if err := proto.Unmarshal(r, dynamicpb.NewMessage(o.example)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(records))/b.Elapsed().Seconds(), "rows/s")
}

func ExampleScanner() {
	var e example.Encoder
	e.Int64s("user", 7)
	e.Strings("genres", "Comedy", "War")
	record := e.Append(nil)

	s, err := example.NewScanner([]string{"genres", "user", "age"})
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := s.Scan(record)
	if err != nil {
		fmt.Println(err)
		return
	}
	genres, err := values[0].AppendBytes(nil)
	fmt.Printf("%s %s %s %v\n", genres, values[1].Kind, values[2].Kind, err)
	// Output: [Comedy War] int64_list none <nil>
}
