// What this machine can do at most: the lines that a benchmark's figures are held against, measured in the same run.
#ifndef NUNSPARK_BENCH_MACHINE_LIMITS_H_
#define NUNSPARK_BENCH_MACHINE_LIMITS_H_

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace nunspark::bench {

// Whether each thread gets a CPU of its own while it measures, as a compute thread of the engine does.
enum class Placement { kOwnCpus, kFree };

// Calls fn(thread) on `threads` threads at once, the caller among them, which start together; returns the seconds from
// the start to the last one's end. kOwnCpus is kFree where there are fewer CPUs than threads.
double OnThreads(int threads, Placement placement, const std::function<void(int thread)>& fn);

double Median(std::vector<double> values);

// Memory for reading from, 2 MiB pages where the system allows them, touched.
class ReadBuffer {
 public:
  explicit ReadBuffer(int64_t bytes);
  ~ReadBuffer();
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

// GB/s of `threads` threads that read a buffer front to back, each a share of its own: the median of `runs`. Write to
// the buffer first, or every page may be the same one.
double ReadGbps(const ReadBuffer& buffer, int threads, int runs = 7);

// GFLOP/s of f32 fused multiply-adds from registers, by the vectors of kernel table `table` ("avx512", ...; unknown
// names count as scalar); a multiply-add is two operations.
double FmaGflops(std::string_view table, int threads);

// The same for products of 8-bit integers and their exact sums, by the instructions that the table may use for them,
// for avx512amx those of its vectors. 0 where none were measured.
double IntegerGops(std::string_view table, int threads);

}  // namespace nunspark::bench

#endif  // NUNSPARK_BENCH_MACHINE_LIMITS_H_
