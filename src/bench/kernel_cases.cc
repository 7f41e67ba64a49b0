#include "bench/kernel_cases.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "base/align.h"
#include "bench/machine_limits.h"
#include "decode/sampler.h"
#include "kernels/kernels.h"
#include "kernels/numerics.h"
#include "kernels/test_matrices.h"
#include "quant/encoding.h"
#include "quant/lanes.h"

namespace nunspark::bench {
namespace {

constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 64, 512};

// Weights are rotated through a working set beyond the caches, as a model's are. Where one matrix serves many rows,
// less is enough.
constexpr int64_t kStreamedBytes = 256 << 20;
constexpr int64_t kReusedBytes = 64 << 20;
constexpr int64_t kReusedFromRows = 16;

// A round that would take longer computes fewer outputs.
constexpr double kLongestRound_s = 0.3;

constexpr int64_t kOutputGrain = 16;

int64_t StoredBytes(const WeightFormat& format, int64_t outs, int64_t cols) {
  return DataBytes(format, outs, cols) + ScaleBytes(format, outs, cols) + BiasBytes(format, outs, cols);
}

// Copies of one random matrix, whose speed does not depend on its numbers, one behind the other in huge pages.
class MatrixSet {
 public:
  MatrixSet(const WeightFormat& format, int64_t outs, int64_t cols)
      : random_(format, outs, cols, 1),
        stride_(AlignUp(StoredBytes(format, outs, cols), 64) + 3 * 64),
        count_(std::max<int64_t>(1, kStreamedBytes / stride_)),
        memory_(count_ * stride_) {
    const WeightMatrix& from = random_.matrix();
    for (int64_t i = 0; i < count_; ++i) {
      uint8_t* next = memory_.data() + i * stride_;
      const auto copy = [&next](const uint8_t* source, int64_t bytes) {
        std::memcpy(next, source, static_cast<size_t>(bytes));
        return std::exchange(next, next + AlignUp(bytes, 64));
      };
      WeightMatrix to = from;
      to.data = copy(from.data, DataBytes(format, outs, cols));
      if (ScaleBytes(format, outs, cols) > 0) to.scales = copy(from.scales, ScaleBytes(format, outs, cols));
      if (BiasBytes(format, outs, cols) > 0) to.biases = copy(from.biases, BiasBytes(format, outs, cols));
      matrices_.push_back(to);
    }
  }

  const WeightMatrix& first() const { return matrices_.front(); }
  const std::vector<WeightMatrix>& all() const { return matrices_; }
  size_t CountOf(int64_t bytes) const { return static_cast<size_t>(std::clamp<int64_t>(bytes / stride_, 1, count_)); }

 private:
  RandomMatrix random_;
  int64_t stride_, count_;
  ReadBuffer memory_;
  std::vector<WeightMatrix> matrices_;
};

// The set of the format asked for last.
const MatrixSet& SetOf(const WeightFormat& format, int64_t outs, int64_t cols) {
  static std::unique_ptr<MatrixSet> set;
  if (set == nullptr || set->first().format != format || set->first().rows != outs || set->first().cols != cols) {
    set.reset();
    set = std::make_unique<MatrixSet>(format, outs, cols);
  }
  return *set;
}

// Thread's part of `count` items, in multiples of the grain.
struct Share {
  int64_t begin, end;
};
Share ShareOf(int64_t count, int64_t grain, int thread, int threads) {
  const int64_t grains = (count + grain - 1) / grain;
  return {grains * thread / threads * grain, std::min(count, grains * (thread + 1) / threads * grain)};
}

// ---- matrix products

struct MatMulData {
  std::vector<float> x, y;
  std::vector<uint8_t> rounded;             // rows of x, where they enter rounded
  std::vector<std::vector<float>> scratch;  // [threads]
};

// Rounding the rows is another case's: a model does it once for all products of an input.
Work MatMulWork(const KernelTable& table, const WeightFormat& format, Numerics numerics, int64_t rows, int threads,
                const KernelCaseOptions& options) {
  const MatrixSet& set = SetOf(format, options.outs, options.cols);
  const int64_t cols = options.cols;
  auto data = std::make_shared<MatMulData>();
  data->x = RandomFloats(rows * cols, 3);
  data->y.resize(static_cast<size_t>(rows * options.outs));
  if (numerics != Numerics::kF32) {
    const int64_t row_bytes = LayoutOfRoundedRow(cols, numerics).bytes;
    data->rounded.resize(static_cast<size_t>(rows * row_bytes));
    for (int64_t row = 0; row < rows; ++row) {
      table.round_row(data->x.data() + row * cols, cols, numerics, data->rounded.data() + row * row_bytes);
    }
  }
  data->scratch.assign(static_cast<size_t>(threads),
                       std::vector<float>(static_cast<size_t>(MatMulScratchFloats(set.first(), rows))));
  const auto run = [&table, data, numerics, rows, cols, stride = options.outs](const WeightMatrix& w, Share share,
                                                                               int thread) {
    float* const scratch = data->scratch[static_cast<size_t>(thread)].data();
    if (numerics == Numerics::kF32) {
      table.matmul(w, {}, data->x.data(), cols, rows, share.begin, share.end, data->y.data(), stride, scratch);
    } else {
      table.matmul_codes(w, {}, numerics, data->rounded.data(), rows, share.begin, share.end, data->y.data(), stride,
                         scratch);
    }
  };

  const auto start = std::chrono::steady_clock::now();
  run(set.first(), {0, std::min<int64_t>(kOutputGrain, options.outs)}, 0);
  const double grain_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int64_t most_grains = static_cast<int64_t>(kLongestRound_s / grain_s) * threads;
  const int64_t outs = std::clamp<int64_t>(most_grains * kOutputGrain, kOutputGrain * threads, options.outs);
  size_t count = set.CountOf(rows >= kReusedFromRows ? kReusedBytes : kStreamedBytes);
  const int64_t most_matrices = most_grains * kOutputGrain / options.outs;
  count = std::clamp<size_t>(static_cast<size_t>(most_matrices), 1, count);

  Work work;
  work.round = [run, &set, outs, count, threads](int thread) {
    const Share share = ShareOf(outs, kOutputGrain, thread, threads);
    for (size_t i = 0; i < count && share.begin < share.end; ++i) run(set.all()[i], share, thread);
  };
  const double part = static_cast<double>(outs) / static_cast<double>(options.outs) * static_cast<double>(count);
  work.bytes = part * static_cast<double>(StoredBytes(format, options.outs, cols));
  work.operations = part * 2 * static_cast<double>(rows * options.outs * cols);
  return work;
}

Work DecodeRowWork(const KernelTable& table, const WeightFormat& format, int threads,
                   const KernelCaseOptions& options) {
  const MatrixSet& set = SetOf(format, options.outs, options.cols);
  const int64_t rows = std::min<int64_t>(options.outs, 128);
  auto out = std::make_shared<std::vector<std::vector<float>>>(static_cast<size_t>(threads),
                                                               std::vector<float>(static_cast<size_t>(options.cols)));
  Work work;
  work.round = [&table, &set, out, rows](int thread) {
    for (int64_t row = 0; row < rows; ++row) {
      table.decode_row(set.first(), row, (*out)[static_cast<size_t>(thread)].data());
    }
  };
  work.values = static_cast<double>(rows * options.cols * threads);
  return work;
}

// ---- attention: the query heads that share one kv head, over 4096 positions that stay in the caches, as in a prompt's
// pass, or over 16384 of a set that rotates through a working set beyond them, as in a step of decoding

struct AttendShape {
  const char* name;
  int q_heads, key_dim, value_dim;
  bool latent = false;  // the values are the first part of the keys
  float softcap = 0;
  bool streamed = false;
};
constexpr AttendShape kAttendShapes[] = {
    {.name = "gqa4x128", .q_heads = 4, .key_dim = 128, .value_dim = 128},
    {.name = "gqa8x64", .q_heads = 8, .key_dim = 64, .value_dim = 64},
    {.name = "gqa2x256-softcap", .q_heads = 2, .key_dim = 256, .value_dim = 256, .softcap = 50},
    {.name = "latent16x576", .q_heads = 16, .key_dim = 576, .value_dim = 512, .latent = true},
    {.name = "mha1x128-streamed", .q_heads = 1, .key_dim = 128, .value_dim = 128, .streamed = true},
    {.name = "gqa3x64-streamed", .q_heads = 3, .key_dim = 64, .value_dim = 64, .streamed = true},
    {.name = "gqa4x128-streamed", .q_heads = 4, .key_dim = 128, .value_dim = 128, .streamed = true},
    {.name = "gqa8x128-streamed", .q_heads = 8, .key_dim = 128, .value_dim = 128, .streamed = true},
    {.name = "latent16x576-streamed",
     .q_heads = 16,
     .key_dim = 576,
     .value_dim = 512,
     .latent = true,
     .streamed = true},
};
constexpr KvFormat kKvFormats[] = {{.type = FloatType::kF32},
                                   {.type = FloatType::kF16},
                                   {.type = FloatType::kBF16},
                                   {.bits = 8, .group_size = 64},
                                   {.bits = 4, .group_size = 64}};
constexpr int64_t kPositions = 4096, kStreamedPositions = 16384;

// Of one thread: sets of the blocks of one kv head, all with the same random rows, whose numbers do not matter.
struct AttendData {
  AttendData(const KvFormat& format, const AttendShape& shape, int64_t positions, int64_t sets)
      : blocks(positions / kKvBlockPositions),
        memory(sets * blocks * (KvHeadBytes(format, shape.key_dim) + OwnValueBytes(format, shape))),
        q(RandomFloats(int64_t{shape.q_heads} * shape.key_dim, 2)),
        out(static_cast<size_t>(shape.q_heads * shape.value_dim)),
        scratch(static_cast<size_t>(AttentionScratchFloats(shape.key_dim, shape.value_dim))) {
    const std::vector<uint8_t> key = RandomBlock(format, KvSide::kKeys, shape.key_dim, 1);
    const std::vector<uint8_t> value = RandomBlock(format, KvSide::kValues, shape.value_dim, 3);
    uint8_t* next = memory.data();
    const auto copy = [&next](const std::vector<uint8_t>& block) {
      std::memcpy(next, block.data(), block.size());
      return std::exchange(next, next + block.size());
    };
    for (int64_t i = 0; i < sets; ++i) {
      for (int64_t b = 0; b < blocks; ++b) keys.push_back(copy(key));
      for (int64_t b = 0; b < blocks; ++b) {
        values.push_back(shape.latent ? keys[static_cast<size_t>(i * blocks + b)] : copy(value));
      }
    }
  }

  static int64_t OwnValueBytes(const KvFormat& format, const AttendShape& shape) {
    return shape.latent ? 0 : KvHeadBytes(format, shape.value_dim);
  }
  static std::vector<uint8_t> RandomBlock(const KvFormat& format, KvSide side, int dim, uint32_t seed) {
    std::vector<uint8_t> block(static_cast<size_t>(KvHeadBytes(format, dim)));
    const std::vector<float> rows = RandomFloats(int64_t{kKvBlockPositions} * dim, seed);
    for (int t = 0; t < kKvBlockPositions; ++t)
      Kernels().store_kv(rows.data() + t * dim, dim, format, side, t, block.data());
    return block;
  }

  int64_t blocks;  // of a set
  ReadBuffer memory;
  std::vector<const uint8_t*> keys, values;  // [sets, blocks]
  std::vector<float> q, out, scratch;
  int64_t next_block = 0;
};

Work AttendWork(const KernelTable& table, const KvFormat& format, const AttendShape& shape, int threads) {
  const int64_t positions = shape.streamed ? kStreamedPositions : kPositions;
  const int64_t set_bytes =
      positions / kKvBlockPositions * (KvHeadBytes(format, shape.key_dim) + AttendData::OwnValueBytes(format, shape));
  const int64_t sets = shape.streamed ? CeilDiv(kReusedBytes * 2, set_bytes) : 1;
  auto data = std::make_shared<std::vector<std::unique_ptr<AttendData>>>();
  for (int i = 0; i < threads; ++i) data->push_back(std::make_unique<AttendData>(format, shape, positions, sets));
  const AttendParams params{.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim)), .softcap = shape.softcap};
  Work work;
  work.round = [&table, data, format, shape, positions, params](int thread) {
    AttendData& d = *(*data)[static_cast<size_t>(thread)];
    const KvView kv{.format = format,
                    .kv_heads = 1,
                    .key_dim = shape.key_dim,
                    .value_dim = shape.value_dim,
                    .value_width = shape.latent ? shape.key_dim : shape.value_dim,
                    .key_blocks = d.keys.data() + d.next_block,
                    .value_blocks = d.values.data() + d.next_block};
    table.attend(d.q.data(), shape.q_heads, kv, 0, 0, positions, params, d.out.data(), d.scratch.data());
    d.next_block = (d.next_block + d.blocks) % std::ssize(d.keys);
  };
  work.bytes = static_cast<double>(set_bytes * threads);
  work.operations = 2.0 * shape.q_heads * (shape.key_dim + shape.value_dim) * static_cast<double>(positions * threads);
  return work;
}

// ---- element-wise kernels over a row that stays in the caches

struct RowData {
  std::vector<float> a, b, out;
  std::vector<uint8_t> stored;
};
struct RowKernel {
  const char* name;
  int64_t size;
  void (*run)(const KernelTable& table, RowData& row);
};

constexpr int64_t kRowSize = 2880;
int64_t SizeOf(const RowData& row) { return static_cast<int64_t>(row.out.size()); }

// `out` is written from a and b, so that nothing grows from round to round; values stay ordinary numbers.
constexpr RowKernel kRowKernels[] = {
    {"swiglu", kRowSize,
     [](const KernelTable& t, RowData& r) { t.swiglu(r.a.data(), r.b.data(), SizeOf(r), r.out.data()); }},
    {"geglu", kRowSize,
     [](const KernelTable& t, RowData& r) { t.geglu(r.a.data(), r.b.data(), SizeOf(r), r.out.data()); }},
    {"swiglu_clipped", kRowSize,
     [](const KernelTable& t, RowData& r) {
       t.swiglu_clipped(r.a.data(), r.b.data(), SizeOf(r), 1.702f, 7.0f, r.out.data());
     }},
    {"xielu", kRowSize,
     [](const KernelTable& t, RowData& r) { t.xielu(r.a.data(), SizeOf(r), 0.8f, 1.3f, 0.5f, -1e-6f, r.out.data()); }},
    {"softcap", kRowSize, [](const KernelTable& t, RowData& r) { t.softcap(r.out.data(), 30.0f, SizeOf(r)); }},
    {"rms_norm", kRowSize,
     [](const KernelTable& t, RowData& r) {
       const auto* const weight = reinterpret_cast<const uint8_t*>(r.b.data());
       t.rms_norm(r.a.data(), {.type = FloatType::kF32, .size = SizeOf(r), .data = weight}, 1.0f, 1e-6f, SizeOf(r),
                  r.out.data());
     }},
    // 0.6 and 0.8 are cosine and sine of one angle.
    {"rope_halves", kRowSize,
     [](const KernelTable& t, RowData& r) { t.rope_halves(r.out.data(), r.a.data(), r.b.data(), SizeOf(r)); }},
    {"rope_pairs", kRowSize,
     [](const KernelTable& t, RowData& r) { t.rope_pairs(r.out.data(), r.a.data(), r.b.data(), SizeOf(r)); }},
    {"add", kRowSize, [](const KernelTable& t, RowData& r) { t.add(r.out.data(), r.a.data(), SizeOf(r)); }},
    {"add_scaled", kRowSize,
     [](const KernelTable& t, RowData& r) { t.add_scaled(r.out.data(), 1e-3f, r.a.data(), SizeOf(r)); }},
    {"scale", kRowSize, [](const KernelTable& t, RowData& r) { t.scale(r.out.data(), 1.0f, SizeOf(r)); }},
    {"softmax", kRowSize, [](const KernelTable& t, RowData& r) { t.softmax(r.out.data(), SizeOf(r)); }},
    {"store_f16", kRowSize,
     [](const KernelTable& t, RowData& r) { t.store_floats(r.a.data(), SizeOf(r), FloatType::kF16, r.stored.data()); }},
    {"load_f16", kRowSize,
     [](const KernelTable& t, RowData& r) {
       t.load_floats(r.stored.data(), FloatType::kF16, SizeOf(r), r.out.data());
     }},
    {"argmax", 151936, [](const KernelTable& t, RowData& r) { r.out[0] += t.argmax(r.a.data(), SizeOf(r)) > 0; }},
    {"top_8_of_128", 128,
     [](const KernelTable&, RowData& r) {
       int32_t indices[8];
       float values[8];
       TopK(r.a.data(), SizeOf(r), 8, indices, values);
       r.out[0] = values[0];
     }},
};

Work RowWork(const KernelTable& table, const RowKernel& kernel, int threads) {
  auto data = std::make_shared<std::vector<RowData>>(static_cast<size_t>(threads));
  const auto size = static_cast<size_t>(kernel.size);
  for (RowData& row : *data) {
    row = {.a = std::vector<float>(size, 0.6f),
           .b = std::vector<float>(size, 0.8f),
           .out = std::vector<float>(size, 1.0f),
           .stored = std::vector<uint8_t>(2 * size)};
  }
  Work work;
  work.round = [&table, &kernel, data](int thread) { kernel.run(table, (*data)[static_cast<size_t>(thread)]); };
  work.values = static_cast<double>(kernel.size) * threads;
  return work;
}

// ---- sampling: a token of a large vocabulary, whose probabilities fall with the rank as words' do (Zipf)

struct SampleShape {
  const char* name;
  SamplingOptions options;
};
constexpr SampleShape kSampleShapes[] = {
    {"greedy", {}},
    {"temperature", {.temperature = 1}},
    {"top-k", {.temperature = 1, .top_k = 40}},
    {"top-p", {.temperature = 1, .top_p = 0.95}},
    {"min-p", {.temperature = 1, .min_p = 0.05}},
    {"all", {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .min_p = 0.01}},
};
constexpr int64_t kVocabulary = 151936;

std::vector<float> ZipfLogits() {
  constexpr double kExponent = 1.3;
  std::vector<float> logits;
  for (int64_t rank = 1; rank <= kVocabulary; ++rank) {
    logits.push_back(static_cast<float>(-kExponent * std::log(static_cast<double>(rank))));
  }
  std::shuffle(logits.begin(), logits.end(), std::mt19937(7));
  return logits;
}

Work SampleWork(const SampleShape& shape, int threads) {
  struct Data {
    std::vector<float> logits = ZipfLogits();
    SamplerScratch scratch;
    std::vector<Sampler> sampler;
    uint32_t position = 0;
    int32_t token = 0;
  };
  auto data = std::make_shared<std::vector<Data>>(static_cast<size_t>(threads));
  for (Data& d : *data) d.sampler.emplace_back(shape.options, kVocabulary, d.scratch);
  Work work;
  work.round = [data](int thread) {
    Data& d = (*data)[static_cast<size_t>(thread)];
    d.token = d.sampler[0].Sample(d.logits.data(), {.seed = 1, .choice = 0, .position = d.position++});
  };
  work.values = static_cast<double>(kVocabulary) * threads;
  return work;
}

Work RoundWork(const KernelTable& table, Numerics numerics, int threads, const KernelCaseOptions& options) {
  struct Data {
    std::vector<float> x;
    std::vector<uint8_t> rounded;
  };
  const auto bytes = static_cast<size_t>(LayoutOfRoundedRow(options.cols, numerics).bytes);
  auto data = std::make_shared<std::vector<Data>>(static_cast<size_t>(threads));
  for (Data& d : *data) d = {.x = RandomFloats(options.cols, 3), .rounded = std::vector<uint8_t>(bytes)};
  Work work;
  work.round = [&table, numerics, data, cols = options.cols](int thread) {
    Data& d = (*data)[static_cast<size_t>(thread)];
    table.round_row(d.x.data(), cols, numerics, d.rounded.data());
  };
  work.values = static_cast<double>(options.cols * threads);
  return work;
}

// ---- which there are

std::vector<WeightFormat> BenchFormats() {
  std::vector<WeightFormat> formats;
  for (const int bits : {4, 8, 1, 2, 3, 5, 6}) {
    formats.push_back({.encoding = Encoding::kAffine,
                       .bits = static_cast<uint8_t>(bits),
                       .group_size = 64,
                       .scale_type = FloatType::kBF16});
  }
  formats.push_back(FixedFormat(Encoding::kMxFp4));
  for (size_t i = 0, in_rows = formats.size(); i < in_rows; ++i) {
    formats.push_back(InOrder(formats[i], MatrixOrder::kLanes16));
  }
  for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
    formats.push_back(FixedFormat(static_cast<Encoding>(e)));
  }
  for (const Encoding encoding : {Encoding::kMxFp8, Encoding::kNvFp4}) {
    formats.push_back(FixedFormat(encoding));
  }
  formats.push_back({.encoding = Encoding::kFp8Block, .bits = 8, .group_size = 128, .group_rows = 128});
  formats.push_back({.encoding = Encoding::kAwq,
                     .bits = 4,
                     .group_size = 128,
                     .scale_type = FloatType::kF16,
                     .order = MatrixOrder::kColumnMajor});
  for (const MatrixOrder order : {MatrixOrder::kRowMajor, MatrixOrder::kColumnMajor}) {
    for (const FloatType type : kAllFloatTypes) {
      formats.push_back(FloatFormat(type));
      formats.back().order = order;
    }
  }
  return formats;
}

// 1, 2, 4, ... and the last.
std::vector<int> ThreadCounts(int most) {
  std::vector<int> counts;
  for (int threads = 1; threads < most; threads *= 2) counts.push_back(threads);
  counts.push_back(most);
  return counts;
}

}  // namespace

std::string KernelCase::Name() const {
  return fmt::format("{}/{}/{}/{}/{}/{}", kernel, table, numerics, what, rows, threads);
}

std::vector<KernelCase> AllKernelCases(const KernelCaseOptions& options) {
  std::vector<KernelCase> cases;
  const std::vector<int> thread_counts = ThreadCounts(options.max_threads);
  const auto add = [&](const char* kernel, const KernelTable* table, Numerics numerics, std::string what, int64_t rows,
                       auto work_of) {
    for (const int threads : thread_counts) {
      cases.push_back({.kernel = kernel,
                       .table = table->name,
                       .numerics = std::string(NumericsName(numerics)),
                       .what = what,
                       .rows = rows,
                       .threads = threads,
                       .prepare = [work_of, threads] { return work_of(threads); }});
    }
  };
  constexpr Numerics kF32 = Numerics::kF32;
  for (const WeightFormat& format : BenchFormats()) {
    std::vector<Numerics> all_numerics = {kF32};
    if (HasCodes(format)) all_numerics = {Numerics::kI16, Numerics::kI8, kF32};
    for (const KernelTable* table : AvailableKernels()) {
      for (const Numerics numerics : all_numerics) {
        for (const int64_t rows : kRows) {
          add("matmul", table, numerics, FormatName(format), rows,
              [=](int threads) { return MatMulWork(*table, format, numerics, rows, threads, options); });
        }
      }
      add("decode_row", table, kF32, FormatName(format), 1,
          [=](int threads) { return DecodeRowWork(*table, format, threads, options); });
    }
  }
  for (const KernelTable* table : AvailableKernels()) {
    for (const Numerics numerics : {Numerics::kI16, Numerics::kI8}) {
      add("round_row", table, numerics, fmt::format("{}", options.cols), 1,
          [=](int threads) { return RoundWork(*table, numerics, threads, options); });
    }
    for (const AttendShape& shape : kAttendShapes) {
      for (const KvFormat& format : kKvFormats) {
        if (shape.latent && format.bits != 0) continue;
        add("attend", table, kF32, fmt::format("{}/{}", KvFormatName(format), shape.name), 1,
            [=](int threads) { return AttendWork(*table, format, shape, threads); });
      }
    }
    for (const RowKernel& kernel : kRowKernels) {
      add(kernel.name, table, kF32, fmt::format("{}", kernel.size), 1,
          [=](int threads) { return RowWork(*table, kernel, threads); });
    }
  }
  for (const SampleShape& shape : kSampleShapes) {
    add("sample", &Kernels(), kF32, shape.name, 1, [=](int threads) { return SampleWork(shape, threads); });
  }
  return cases;
}

}  // namespace nunspark::bench
