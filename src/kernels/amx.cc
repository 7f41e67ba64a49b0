#include "kernels/amx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/align.h"
#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nunspark::internal {
namespace {

constexpr int64_t kTestRows = kAmxRows + 3, kTestOutputs = 21, kTestCols = 768;

// Bytes that are the same everywhere.
class ByteStream {
 public:
  uint8_t Next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<uint8_t>(state_ >> 24);
  }
  std::vector<uint8_t> Bytes(int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    std::generate(bytes.begin(), bytes.end(), [&] { return Next(); });
    return bytes;
  }

 private:
  uint32_t state_ = 1;
};

// Every second byte, the upper ones of halves, to that of small numbers.
void MakeSmall(std::vector<uint8_t>& halves) {
  for (size_t i = 1; i < halves.size(); i += 2) halves[i] = static_cast<uint8_t>(0x3c | (halves[i] & 0x80));
}

std::vector<float> Products(const KernelTable& table, const WeightMatrix& w, Numerics numerics,
                            const std::vector<uint8_t>& rows) {
  std::vector<float> y(static_cast<size_t>(kTestRows * w.rows));
  std::vector<float> scratch(static_cast<size_t>(VectorScratchFloats(w, kTestRows) + AmxScratchFloats(w, kTestRows)));
  table.matmul_codes(w, {}, numerics, rows.data(), kTestRows, 0, w.rows, y.data(), w.rows, scratch.data());
  return y;
}

}  // namespace

std::string DifferenceOfCodes(const KernelTable& table, const KernelTable& reference) {
  ByteStream random;
  std::vector<float> x(static_cast<size_t>(kTestRows * kTestCols));
  for (float& value : x) value = static_cast<float>(random.Next()) - 127.5f;
  const WeightFormat formats[] = {
      {.encoding = Encoding::kAffine, .bits = 4, .group_size = 64, .scale_type = FloatType::kBF16},
      {.encoding = Encoding::kAffine, .bits = 8, .group_size = 32, .scale_type = FloatType::kBF16},
      FixedFormat(Encoding::kNvFp4)};
  for (const WeightFormat& format : formats) {
    const std::vector<uint8_t> codes = random.Bytes(DataBytes(format, kTestOutputs, kTestCols));
    std::vector<uint8_t> scales = random.Bytes(ScaleBytes(format, kTestOutputs, kTestCols));
    std::vector<uint8_t> biases = random.Bytes(BiasBytes(format, kTestOutputs, kTestCols));
    MakeSmall(biases);
    if (format.encoding == Encoding::kAffine) {
      MakeSmall(scales);
    } else {
      for (uint8_t& scale : scales) scale &= 0xbf;  // no NaN
    }
    const WeightMatrix w{.format = format,
                         .rows = kTestOutputs,
                         .cols = kTestCols,
                         .data = codes.data(),
                         .scales = scales.data(),
                         .biases = biases.empty() || format.encoding != Encoding::kAffine ? nullptr : biases.data()};
    for (const Numerics numerics : {Numerics::kI16, Numerics::kI8}) {
      const int64_t bytes = LayoutOfRoundedRow(kTestCols, numerics).bytes;
      std::vector<uint8_t> rows(static_cast<size_t>(kTestRows * bytes));
      for (int64_t r = 0; r < kTestRows; ++r) {
        reference.round_row(x.data() + r * kTestCols, kTestCols, numerics, rows.data() + r * bytes);
      }
      const std::vector<float> expected = Products(reference, w, numerics, rows);
      const std::vector<float> found = Products(table, w, numerics, rows);
      if (std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0) continue;
      return fmt::format("{} gives other products than {} ({}, {})", table.name, reference.name, FormatName(format),
                         NumericsName(numerics));
    }
  }
  return {};
}

int64_t AmxScratchFloats(const WeightMatrix& w, int64_t rows) {
  if (!HasCodes(w.format) || rows < kAmxRows) return 0;
  int64_t bytes = 0;
  for (const Numerics numerics : {Numerics::kI16, Numerics::kI8}) {
    const RoundedRowLayout layout = LayoutOfRoundedRow(w.cols, numerics);
    const int64_t block = std::min(AmxRowBlock(layout.bytes), AlignUp(rows, kAmxRows));
    bytes = std::max(bytes, block * layout.units * layout.pairs);
  }
  constexpr int64_t kToAlign = 16;
  return bytes / 4 + kToAlign;
}

#if defined(__x86_64__)
namespace {

// What the state components of the tiles' configuration and data are in XCR0.
constexpr uint64_t kTileStates = uint64_t{3} << 17;
constexpr long kTileData = 18;
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, which Debian 12's headers lack

bool ProcessorHasAmx() {
  unsigned a, b, c, d;
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25, kXsaveInUse = 1u << 27;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kXsaveInUse) != 0;
}

bool HasKnownTiles() {
  unsigned a, b, c, d;
  // Of palette 1: bytes of a row, tiles, rows.
  return __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) != 0 && (b & 0xffff) >= 64 && b >> 16 >= 8 && (c & 0xffff) >= 16;
}

uint64_t EnabledStates() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

std::string TroubleOfSystem() {
  if (!HasKnownTiles()) return "its tiles are not those of palette 1";
  if ((EnabledStates() & kTileStates) != kTileStates) return "the system does not enable tiles";
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    return fmt::format("the system does not permit tiles: {}", std::strerror(errno));
  }
  return {};
}

}  // namespace

AmxChoice ChooseAmx(const KernelTable* vnni) {
  if (vnni == nullptr || !ProcessorHasAmx()) return {};
  std::string trouble = TroubleOfSystem();
  if (trouble.empty()) trouble = DifferenceOfCodes(AmxTable(*vnni), *vnni);
  if (!trouble.empty()) return {.table = nullptr, .trouble = "AMX is not used: " + trouble};
  return {.table = &AmxTable(*vnni), .trouble = {}};
}
#else
AmxChoice ChooseAmx(const KernelTable*) { return {}; }
#endif

}  // namespace nunspark::internal
