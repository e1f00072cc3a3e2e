package cli

func benchTable() benchmark {
	return benchmark{name: "table", short: "Measure lookups and updates of a table against others", long: `Measure a table of embedding rows (dim 16, --rows of them) on one core: lookups with the row copied out, uniform and zipf (1.05), against rows at known
addresses and a plain loop over an array, PyTorch's gather from an array, abseil's flat_hash_map with prefetching by hand, libcuckoo, and a Go map over an array; two threads
against one; Adagrad against lookups; bytes of index; the wait of 64 inserts while the table grows by 64 times beside a reader; and the garbage
collector. Rates are millions of rows per second of processor time.

The C++ programs are built into --dir with g++; abseil and libcuckoo are left out where Debian's libabsl-dev and libcuckoo-dev are not
installed, PyTorch where the python3 on PATH, or that of --with torch=FILE, does not have it. A table of 64 Mi rows beside another needs 20 GiB.

  monolith bench table --rows 16777216 --with torch=$HOME/torch/bin/python3`, with: []string{"torch"}}
}
