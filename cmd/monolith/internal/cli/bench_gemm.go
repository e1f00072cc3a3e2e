package cli

func benchGemm() benchmark {
	return benchmark{name: "gemm", short: "Measure matrix products", long: `Measure the products of a fully connected layer with 400 inputs: forward (rows x 400 x outputs), the gradients dX and dW, and vectors times
the matrix, on one thread and on two. Others are gonum, this program's other kernels (MONOLITH_SIMD chooses ours: off, avx2, avx512, amx), and OpenBLAS where a C
compiler and libopenblas-dev are installed: a small C program is built for it in the folder of --dir.`}
}
