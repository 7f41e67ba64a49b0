// The cases of the kernel benchmark: every kernel with what it works on, for every table of this build and processor.
#ifndef NUNSPARK_BENCH_KERNEL_CASES_H_
#define NUNSPARK_BENCH_KERNEL_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nunspark::bench {

// What the threads of a case do in one round, each its own share, and what all shares together come to.
struct Work {
  std::function<void(int thread)> round;
  double bytes = 0;       // read from memory: weights with their scales, keys and values; 0 where all stays in caches
  double operations = 0;  // multiplications and additions; 0 where counting them says nothing
  double values = 0;      // results of an element-wise kernel
};

struct KernelCase {
  std::string kernel;    // "matmul", "attend", "decode_row", "rms_norm", ...
  std::string table;     // "avx512"
  std::string numerics;  // "f32"
  std::string what;      // encoding, or shape
  int64_t rows = 1;
  int threads = 1;
  // Makes the data, shared with the case before where that is the same, and the work over it. The work is valid until
  // another case is prepared.
  std::function<Work()> prepare;

  // "matmul/avx512/f32/affine4-g64/bf16/1/2": kernel, table, numerics, what, rows, threads.
  std::string Name() const;
};

struct KernelCaseOptions {
  int64_t outs = 1024;  // of a matrix
  int64_t cols = 4096;
  int max_threads = 1;
};

// In an order that shares data between neighbours.
std::vector<KernelCase> AllKernelCases(const KernelCaseOptions& options);

}  // namespace nunspark::bench

#endif  // NUNSPARK_BENCH_KERNEL_CASES_H_
