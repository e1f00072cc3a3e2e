package simd_test

import (
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	old, haswell := []simd.Family{simd.Portable}, []simd.Family{simd.Portable, simd.AVX2}
	skylake := []simd.Family{simd.Portable, simd.AVX2, simd.AVX512}
	all := append(slices.Clone(skylake), simd.AMX)
	tests := []struct {
		env       string
		available []simd.Family
		want      simd.Family
		err       string
	}{
		{"", all, simd.AMX, ""},
		{"", skylake, simd.AVX512, ""},
		{"", old, simd.Portable, ""},
		{"off", all, simd.Portable, ""},
		{"AVX2", all, simd.AVX2, ""},
		{"avx512", all, simd.AVX512, ""},
		{"amx", all, simd.AMX, ""},
		{"amx", skylake, simd.AVX512, "MONOLITH_SIMD=amx: this processor, or its system, has not the instructions of amx"},
		{"avx512", haswell, simd.AVX2, "MONOLITH_SIMD=avx512: this processor, or its system, has not"},
		{"avx2", old, simd.Portable, "leave it empty for portable"},
		{"sse", haswell, simd.AVX2, `MONOLITH_SIMD="sse" is none of off, avx2, avx512 and amx`},
	}
	for _, test := range tests {
		got, err := simd.Choose(test.env, test.available)
		if got != test.want {
			t.Errorf("%q of %v: got %s, want %s", test.env, test.available, got, test.want)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q of %v: got error %v, want %q", test.env, test.available, err, test.err)
		}
	}
}

// TestNamesOfFamilies: names say by which rules a program was compiled, and lead back to the setting of a family.
func TestNamesOfFamilies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		arch  string
		fused bool
		want  string
	}{{"amd64", false, ""}, {"amd64", true, "+fma"}, {"arm64", true, "-arm64"}, {"riscv64", false, "-riscv64"}} {
		if got := simd.RoundingOf(test.arch, test.fused); got != test.want {
			t.Errorf("%s, fused %t: got %q, want %q", test.arch, test.fused, got, test.want)
		}
	}
	// The sum of a product as this compiler makes it, of factors that are no constants: 0 where the product is rounded.
	one := float32(len(t.Name())) / float32(len(t.Name()))
	d, term := one/8192, -one
	fused := (one+d)*(one-d)+term != 0
	name := simd.Portable.String()
	if want := "portable" + simd.RoundingOf(runtime.GOARCH, fused); name != want {
		t.Errorf("got the name %s, want %s", name, want)
	}
	for name, want := range map[string]string{
		name: "MONOLITH_SIMD=off", simd.AVX2.String(): "MONOLITH_SIMD=avx2", simd.AVX512.String(): "MONOLITH_SIMD=avx512", simd.AMX.String(): "MONOLITH_SIMD=amx",
		"portable-mips": "", "avx1024": "", "": "",
	} {
		if got := simd.Setting(name); got != want {
			t.Errorf("%q: got the setting %q, want %q", name, got, want)
		}
	}
}

// TestFamilies says in the log what was tested, and that AVX-512 or AMX was not where the processor has none.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, f := range simd.Available() {
		t.Logf("this processor runs %s", f)
	}
	all := simd.Available()
	if !slices.Contains(all, simd.AVX512) {
		t.Skip("this processor has no AVX-512; its kernels are interpreted, not run")
	}
	if !slices.Contains(all, simd.AMX) {
		t.Log("this processor, or its system, has no AMX; its kernels are interpreted, not run")
	}
}

// TestInterpretedAVX512 runs the tests of this package with the committed instructions of AVX-512 and AMX interpreted, so that they are
// checked on every processor; see interpret_amd64.go.
func TestInterpretedAVX512(t *testing.T) {
	if simd.Interpreted {
		t.Skip("this is that run")
	}
	if testing.Short() {
		t.Skip("half a minute; without -short")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the instructions are those of amd64")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to build the interpreter with")
	}
	out, err := exec.CommandContext(t.Context(), tool, "test", "-count=1", "-short", "-v", "-tags=simd_interpret", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []string{"TestGemm/avx512", "TestGemmBlocks/avx512", "TestGemmBF16/avx512", "TestGemmBF16/amx", "TestGemm/amx", "TestGemmSpecial/amx", "TestGemmLargest/amx", "TestGemmKept/amx", "TestGemmOfParts", "TestGemmErrors", "TestRoundBF16/avx512", "TestKeep/avx512", "TestFormulas/avx512", "TestConversions/avx512", "TestEntries/avx512", "TestMaxMagnitude/avx512"} {
		if !strings.Contains(string(out), "--- PASS: "+test) {
			t.Errorf("%s was not run", test)
		}
	}
}
