// Speed of the kernels on one core, each table. Weights are rotated through a working set beyond the caches, as a
// model's are. BENCHMARK names: matmul/<table>/<format>/<rows>, attend/<table>/<type>.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

constexpr int64_t kOuts = 1024;
constexpr int64_t kCols = 4096;

// A matrix whose bytes are cheap to make (speed does not depend on them), larger than the caches at `rows` >= 1.
std::vector<std::unique_ptr<RandomMatrix>> MakeSet(const WeightFormat& format, int64_t bytes_wanted) {
  std::vector<std::unique_ptr<RandomMatrix>> set;
  int64_t bytes = 0;
  while (bytes < bytes_wanted || set.empty()) {
    set.push_back(std::make_unique<RandomMatrix>(format, kOuts, kCols, static_cast<uint32_t>(set.size() + 1)));
    bytes += kOuts * (RowBytes(format, kCols) + 2 * ScaleRowBytes(format, kCols));
  }
  return set;
}

void MatMul(benchmark::State& state, const KernelTable* table, WeightFormat format, int64_t rows) {
  const auto set = MakeSet(format, rows <= 4 ? 200'000'000 : 1);
  const std::vector<float> x = RandomFloats(rows * kCols, 3);
  std::vector<float> y(static_cast<size_t>(rows * kOuts));
  std::vector<float> scratch(static_cast<size_t>(MatMulScratchFloats(set[0]->matrix(), rows)));
  size_t next = 0;
  for (auto _ : state) {
    const WeightMatrix& w = set[next++ % set.size()]->matrix();
    table->matmul(w, {}, x.data(), kCols, rows, 0, kOuts, y.data(), kOuts, scratch.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<double>(state.iterations());
  const auto bytes = static_cast<double>(kOuts * (RowBytes(format, kCols) + 2 * ScaleRowBytes(format, kCols)));
  state.counters["weights_GBps"] = benchmark::Counter(runs * bytes / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOPs"] =
      benchmark::Counter(runs * 2.0 * static_cast<double>(rows * kOuts * kCols) / 1e9, benchmark::Counter::kIsRate);
}

// Four query heads of 128 over 4096 positions.
void Attend(benchmark::State& state, const KernelTable* table, FloatType type) {
  constexpr int kHeads = 4, kDim = 128, kPositions = 4096, kBlocks = kPositions / kKvBlockPositions;
  std::vector<uint8_t> bytes;
  AppendFloats(RandomFloats(kPositions * kDim, 1), type, bytes);
  const int64_t block_bytes = int64_t{kKvBlockPositions} * kDim * FloatBytes(type);
  std::vector<uint8_t> value_bytes = bytes;
  std::vector<const uint8_t*> keys, values;
  for (int64_t b = 0; b < kBlocks; ++b) {
    keys.push_back(bytes.data() + b * block_bytes);
    values.push_back(value_bytes.data() + b * block_bytes);
  }
  const KvView kv{.type = type,
                  .kv_heads = 1,
                  .key_dim = kDim,
                  .value_dim = kDim,
                  .value_stride = kDim,
                  .key_blocks = keys.data(),
                  .value_blocks = values.data()};
  const std::vector<float> q = RandomFloats(kHeads * kDim, 2);
  std::vector<float> out(q.size()), scratch(static_cast<size_t>(AttentionScratchFloats(kDim, kDim)));
  for (auto _ : state) {
    table->attend(q.data(), kHeads, kv, 0, 0, kPositions, {.scale = 0.088f}, out.data(), scratch.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["kv_GBps"] =
      benchmark::Counter(runs * 2.0 * static_cast<double>(bytes.size()) / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOPs"] =
      benchmark::Counter(runs * 4.0 * kHeads * kDim * kPositions / 1e9, benchmark::Counter::kIsRate);
}

// What memory gives one core: an upper limit for decoding.
void ReadMemory(benchmark::State& state) {
  std::vector<uint64_t> words(25'000'000, 1);
  for (auto _ : state) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= words.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["GBps"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(words.size()) * 8 / 1e9,
                         benchmark::Counter::kIsRate);
}

void RegisterAll() {
  benchmark::RegisterBenchmark("read_memory", ReadMemory)->Unit(benchmark::kMillisecond);
  const WeightFormat formats[] = {
      {.encoding = Encoding::kAffine, .bits = 4, .group_size = 64, .scale_type = FloatType::kBF16},
      {.encoding = Encoding::kAffine, .bits = 8, .group_size = 64, .scale_type = FloatType::kBF16},
      FloatFormat(FloatType::kBF16),
      FloatFormat(FloatType::kF16),
      FloatFormat(FloatType::kF32),
  };
  for (const KernelTable* table : AvailableKernels()) {
    for (const WeightFormat& format : formats) {
      for (int64_t rows : {1, 4, 32, 256}) {
        benchmark::RegisterBenchmark(fmt::format("matmul/{}/{}/{}", table->name, FormatName(format), rows).c_str(),
                                     MatMul, table, format, rows)
            ->Unit(benchmark::kMicrosecond);
      }
    }
    for (FloatType type : kAllFloatTypes) {
      benchmark::RegisterBenchmark(fmt::format("attend/{}/{}", table->name, FloatName(type)).c_str(), Attend, table,
                                   type)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace nunspark

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  nunspark::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
