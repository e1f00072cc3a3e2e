package tfbundle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/internal/tfbundle"
)

// TestSample: the variables of a model that upstream exported are its step alone.
func TestSample(t *testing.T) {
	t.Parallel()
	data := os.Getenv("MONOLITH_DATA")
	prefix := filepath.Join(data, "formats/bytedance_monolith/native_training/model_export/testdata/saved_model/ps_0/1622716114/variables/variables")
	if _, err := os.Stat(prefix + ".index"); data == "" || err != nil {
		testbed.Require(t, "data", "upstream's exported model is not there; MONOLITH_DATA names the folder of data sets")
	}
	b, err := tfbundle.Open(t.Context(), fsx.Local{}, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Tensors(); len(got) != 1 || got[0].Name != "global_step" || got[0].Type != 9 || len(got[0].Shape) != 0 {
		t.Errorf("got %+v", got)
	}
	if step, err := b.Int64(t.Context(), "global_step"); err != nil || len(step) != 1 {
		t.Errorf("the step is %v, %v", step, err)
	}
	if _, err := b.Float32(t.Context(), "global_step"); !errors.Is(err, tfbundle.ErrTensor) {
		t.Errorf("an int64 read as float32: %v", err)
	}
	if _, err := b.Float32(t.Context(), "dense/kernel"); !errors.Is(err, tfbundle.ErrTensor) {
		t.Errorf("what is not there: %v", err)
	}
}

// variables are enough for more than one block of names.
func variables() []tfbundle.Variable {
	var out []tfbundle.Variable
	for i := range 200 {
		v := tfbundle.Variable{Name: fmt.Sprintf("layer_%03d/kernel", i), Shape: []int64{int64(i%4 + 1), 3}}
		for k := range (i%4 + 1) * 3 {
			v.Values = append(v.Values, float32(i)+float32(k)/16)
		}
		out = append(out, v)
	}
	return append(out, tfbundle.Variable{Name: "b", Values: []float32{-0.5}})
}

func write(t *testing.T) (prefix string) {
	t.Helper()
	prefix = filepath.Join(t.TempDir(), "model.ckpt-7")
	if err := tfbundle.Write(t.Context(), fsx.Local{}, prefix, 7, variables()); err != nil {
		t.Fatal(err)
	}
	return prefix
}

func compare(t *testing.T, prefix string) {
	t.Helper()
	b, err := tfbundle.Open(t.Context(), fsx.Local{}, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(b.Tensors()); got != len(variables())+1 {
		t.Fatalf("%d variables", got)
	}
	for _, v := range variables() {
		got, err := b.Float32(t.Context(), v.Name)
		if err != nil || !slices.Equal(got, v.Values) {
			t.Fatalf("%s: got %v, %v, want %v", v.Name, got, err, v.Values)
		}
	}
	if step, err := b.Int64(t.Context(), "global_step"); err != nil || step[0] != 7 {
		t.Errorf("the step is %v, %v", step, err)
	}
}

// TestRoundTrip: what is written is read.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	compare(t, write(t))
	err := tfbundle.Write(t.Context(), fsx.Local{}, filepath.Join(t.TempDir(), "x"), 0, []tfbundle.Variable{{Name: "a"}, {Name: "a"}})
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := tfbundle.Open(t.Context(), fsx.Local{}, filepath.Join(t.TempDir(), "x")); !errors.Is(err, tfbundle.ErrNone) {
		t.Errorf("what is not there: %v", err)
	}
}

// TestWriter: variables that are written in pieces, to several files at a time, are read; one that lacks values is none.
func TestWriter(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "deep", "x")
	w, err := tfbundle.Create(t.Context(), fsx.Local{}, prefix, 2)
	if err != nil {
		t.Fatal(err)
	}
	one, many := w.Begin(0, "one", tfbundle.Float32), w.Begin(1, "many", tfbundle.Float32, 50, 2)
	if err := one.Floats(3); err != nil {
		t.Fatal(err)
	}
	ids := w.Begin(0, "ids", tfbundle.Int64, 50)
	var want []float32
	for i := range 50 {
		want = append(want, float32(i), -float32(i))
		if err := errors.Join(many.Floats(want[2*i:]...), ids.Ints(int64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := tfbundle.Open(t.Context(), fsx.Local{}, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Float32(t.Context(), "many"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := b.Int64(t.Context(), "ids"); err != nil || len(got) != 50 || got[49] != 49 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := b.Float32(t.Context(), "one"); err != nil || len(got) != 1 || got[0] != 3 {
		t.Errorf("got %v, %v", got, err)
	}

	lacking := filepath.Join(t.TempDir(), "y")
	if w, err = tfbundle.Create(t.Context(), fsx.Local{}, lacking, 1); err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(0, "v", tfbundle.Float32, 3).Floats(1, 2); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), `variable "v" of the shape [3] has 8 bytes, not 12`) {
		t.Errorf("%v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(lacking)); err != nil || len(left) > 0 {
		t.Errorf("what is not whole is left: %v, %v", left, err)
	}
}

// TestTensorFlow: TensorFlow reads what is written, and what it saves of that is read here: it shares prefixes of names.
func TestTensorFlow(t *testing.T) {
	t.Parallel()
	prefix := write(t)
	const script = `
import sys, tensorflow as tf
r = tf.train.load_checkpoint(sys.argv[1])
names = sorted(r.get_variable_to_shape_map())
print(len(names), int(r.get_tensor("global_step")), float(r.get_tensor("layer_007/kernel").sum()), r.get_tensor("layer_007/kernel").shape)
tf.raw_ops.SaveV2(prefix=sys.argv[2], tensor_names=names, shape_and_slices=[""]*len(names), tensors=[tf.constant(r.get_tensor(n)) for n in names])
`
	again := filepath.Join(t.TempDir(), "again")
	out := readers.Run(t, script, prefix, again)
	sum := float32(0)
	for _, v := range variables()[7].Values {
		sum += v
	}
	if want := fmt.Sprintf("202 7 %v (4, 3)", sum); strings.TrimSpace(string(out)) != want {
		t.Errorf("TensorFlow reads %s, want %s", out, want)
	}
	compare(t, again)
}

// TestDamage: every byte of the file of names counts, and so does every byte of a tensor.
func TestDamage(t *testing.T) {
	t.Parallel()
	prefix := write(t)
	for _, name := range []string{prefix + ".index", prefix + ".data-00000-of-00001"} {
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		read := func() error {
			b, err := tfbundle.Open(t.Context(), fsx.Local{}, prefix)
			if err != nil {
				return err
			}
			for _, v := range b.Tensors() {
				if v.Type == 1 {
					_, err = b.Float32(t.Context(), v.Name)
				} else {
					_, err = b.Int64(t.Context(), v.Name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		change := func(what string, b []byte) {
			if err := os.WriteFile(name, b, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := read(); !errors.Is(err, tfbundle.ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(name)) {
				t.Errorf("%s, %s: %v", filepath.Base(name), what, err)
			}
		}
		change("cut short", whole[:len(whole)-1])
		padding := len(whole) - 48
		for at := 0; at < len(whole); at += 97 {
			if strings.HasSuffix(name, ".index") && at >= padding {
				break // of the last bytes some mean nothing
			}
			b := slices.Clone(whole)
			b[at] ^= 0x10
			change(fmt.Sprintf("byte %d", at), b)
		}
		if err := os.WriteFile(name, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, prefix)
}

// FuzzOpen: whatever a file of names holds, opening it ends without a panic.
func FuzzOpen(f *testing.F) {
	prefix := filepath.Join(f.TempDir(), "x")
	if err := tfbundle.Write(f.Context(), fsx.Local{}, prefix, 1, []tfbundle.Variable{{Name: "a", Shape: []int64{1}, Values: []float32{1}}}); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(prefix + ".index")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		prefix := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(prefix+".index", b, 0o644); err != nil {
			t.Fatal(err)
		}
		opened, err := tfbundle.Open(t.Context(), fsx.Local{}, prefix)
		if err != nil {
			if !errors.Is(err, tfbundle.ErrDamaged) {
				t.Errorf("%v is not of what is damaged", err)
			}
			return
		}
		for _, v := range opened.Tensors() {
			if _, err := opened.Float32(t.Context(), v.Name); err == nil {
				t.Errorf("a variable is read of a file that is not there")
			}
		}
	})
}
