// What `monolith bench table` measures beside its own table: lookups of rows of 16 floats, copied out, by one thread.
//
//   table ROWS QUERIES    QUERIES: a file of uint32, each the number of a row
//
// Row i has the key mix(i). The program says "ready", then for each line "WAY N" on its input makes the next N lookups and prints
// the processor time it took in seconds.
#if defined(TWIN_ABSEIL)
#include <absl/container/flat_hash_map.h>
#elif defined(TWIN_LIBCUCKOO)
#include <libcuckoo/cuckoohash_map.hh>
#endif
#include <sys/mman.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static const int dim = 16, group = 32;

static double cpu() {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 32;
  return x;
}

struct Hash {
  size_t operator()(int64_t k) const { return mix((uint64_t)k); }
};

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t rows = strtoull(argv[1], nullptr, 10);
  std::vector<uint32_t> ids;
  FILE* f = fopen(argv[2], "rb");
  if (!f) return 1;
  fseek(f, 0, SEEK_END);
  ids.resize(ftell(f) / 4);
  rewind(f);
  if (fread(ids.data(), 4, ids.size(), f) != ids.size()) return 1;
  fclose(f);
  std::vector<int64_t> keys(ids.size());
  for (size_t i = 0; i < ids.size(); i++) keys[i] = (int64_t)mix(ids[i]);

  const size_t bytes = rows * dim * 4, huge = 2 << 20;
  char* p = (char*)mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 1;
  p = (char*)(((uint64_t)p + huge - 1) & ~(uint64_t)(huge - 1));
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 1, bytes);
  const float* arena = (const float*)p;
#if defined(TWIN_ABSEIL)
  absl::flat_hash_map<int64_t, uint32_t, Hash> map;
  for (size_t i = 0; i < rows; i++) map[(int64_t)mix(i)] = i;
#elif defined(TWIN_LIBCUCKOO)
  libcuckoo::cuckoohash_map<int64_t, uint32_t, Hash> map;
  for (size_t i = 0; i < rows; i++) map.insert((int64_t)mix(i), (uint32_t)i);
#endif
  std::vector<float> out(4096 * dim);
  printf("ready\n");
  fflush(stdout);
  char way[16];
  unsigned long long n;
  size_t at = 0;
  while (scanf("%15s %llu", way, &n) == 2) {
    double begin = cpu();
    for (size_t done = 0; done < n; done += group) {
      if (at + group > ids.size()) at = 0;
      float* o = &out[(done % 4096) * dim];
#if defined(TWIN_ARRAY)
      const uint32_t* id = &ids[at];
      if (way[0] == 'k') // known: the rows are asked for together
        for (int j = 0; j < group; j++) __builtin_prefetch(arena + (size_t)id[j] * dim);
      for (int j = 0; j < group; j++) memcpy(o + j * dim, arena + (size_t)id[j] * dim, dim * 4);
#elif defined(TWIN_ABSEIL)
      uint32_t id[group];
      for (int j = 0; j < group; j++) map.prefetch(keys[at + j]);
      for (int j = 0; j < group; j++) {
        id[j] = map.find(keys[at + j])->second;
        __builtin_prefetch(arena + (size_t)id[j] * dim);
      }
      for (int j = 0; j < group; j++) memcpy(o + j * dim, arena + (size_t)id[j] * dim, dim * 4);
#elif defined(TWIN_LIBCUCKOO)
      for (int j = 0; j < group; j++) {
        uint32_t id = 0;
        map.find(keys[at + j], id);
        memcpy(o + j * dim, arena + (size_t)id * dim, dim * 4);
      }
#endif
      asm volatile("" : : "r"(o) : "memory");
      at += group;
    }
    printf("%.9f\n", cpu() - begin);
    fflush(stdout);
  }
}
