// Rows of keys and values as they are stored: the same bytes from every table, close to the numbers, each row by
// itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/kernels.h"
#include "kernels/test_kv.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

constexpr int kDims[] = {1, 15, 16, 17, 32, 33, 48, 64, 80, 96, 128, 129, 256, 576};

struct StoredRow {
  std::vector<float> values;
  std::vector<float> scales;  // [groups]
};

StoredRow Decode(const KvFormat& format, int dim, KvSide side, const uint8_t* head, int t) {
  StoredRow stored;
  for (int d = 0; d < dim; ++d) stored.values.push_back(StoredElement(format, dim, side, head, t, d));
  for (int64_t group = 0; group < KvGroups(format, dim); ++group) {
    stored.scales.push_back(StoredPair(format, dim, head, t, group).scale);
  }
  return stored;
}

// Row 5 of a head whose other bytes are 0xcd.
std::vector<uint8_t> Store(const KernelTable& table, const KvFormat& format, KvSide side, const std::vector<float>& x) {
  const int dim = static_cast<int>(x.size());
  std::vector<uint8_t> head(static_cast<size_t>(KvHeadBytes(format, dim)), 0xcd);
  table.store_kv(x.data(), dim, format, side, 5, head.data());
  return head;
}

// A step is a scale, of which a code is at most half away; the bias and the scale were rounded before the codes.
void ExpectClose(const KvFormat& format, const std::vector<float>& x, const std::string& what) {
  const int dim = static_cast<int>(x.size());
  const std::vector<uint8_t> values = Store(*FindKernels("scalar"), format, KvSide::kValues, x);
  const StoredRow stored = Decode(format, dim, KvSide::kValues, values.data(), 5);
  const std::vector<uint8_t> keys = Store(*FindKernels("scalar"), format, KvSide::kKeys, x);
  ASSERT_EQ(Decode(format, dim, KvSide::kKeys, keys.data(), 5).values, stored.values) << what;
  for (int d = 0; d < dim; ++d) {
    const int begin = d / format.group_size * format.group_size;
    const auto first = x.begin() + begin, last = x.begin() + std::min(dim, begin + format.group_size);
    const float low = *std::min_element(first, last), high = *std::max_element(first, last);
    const float scale = stored.scales[static_cast<size_t>(d / format.group_size)];
    const float largest = std::max(std::abs(low), std::abs(high));
    const auto most = static_cast<float>((1 << format.bits) - 1);
    const size_t i = static_cast<size_t>(d);
    ASSERT_NEAR(stored.values[i], x[i], scale * 0.50001f + largest * 1e-6f) << what << " element " << d;
    // Rounding the scale up costs one part in a thousand, rounding the bias down one of the largest number.
    ASSERT_LE(scale, ((high - low) + largest * 0.001f) / most * 1.001f + 6e-8f) << what << " element " << d;
  }
}

TEST(StoreKv, RowsAreCloseToTheirNumbers) {
  for (const KvFormat& format : CodeKvFormats()) {
    for (const int dim : kDims) {
      std::vector<float> x = RandomFloats(dim, 7, 3.0f);
      const std::string what = KvFormatName(format) + " dim " + std::to_string(dim);
      ExpectClose(format, x, what);
      for (float& value : x) value += 100.0f;
      ExpectClose(format, x, what + " far from zero");
      for (float& value : x) value = value * 1e-6f;
      ExpectClose(format, x, what + " tiny");
      for (float& value : x) value = -std::abs(value) * 5e8f;
      ExpectClose(format, x, what + " as large as halves go");
      ExpectClose(format, std::vector<float>(x.size(), -2.7f), what + " all equal");
      ExpectClose(format, std::vector<float>(x.size(), 0.0f), what + " zeros");
    }
  }
}

TEST(StoreKv, EveryTableWritesTheSameBytes) {
  for (const KvFormat& format : CodeKvFormats()) {
    for (const int dim : kDims) {
      std::vector<float> x = RandomFloats(dim, static_cast<uint32_t>(dim), 2.0f);
      // Quotients that end in one half.
      for (size_t i = 0; i < x.size(); i += 3) x[i] = std::nearbyint(x[i] * 4) / 8;
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const std::vector<uint8_t> expected = Store(*FindKernels("scalar"), format, side, x);
        for (const KernelTable* table : AvailableKernels()) {
          ASSERT_EQ(Store(*table, format, side, x), expected)
              << table->name << " " << KvFormatName(format) << " " << dim;
        }
      }
    }
  }
}

TEST(StoreKv, ARowLeavesTheOthersAsTheyAre) {
  for (const KvFormat& format : AllKvFormats()) {
    for (const int dim : {20, 80}) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        std::vector<uint8_t> head(static_cast<size_t>(KvHeadBytes(format, dim)), 0xff);
        const auto store = [&](int t, uint32_t seed) {
          Kernels().store_kv(RandomFloats(dim, seed).data(), dim, format, side, t, head.data());
        };
        const auto row = [&](int t) {
          std::vector<float> values;
          for (int d = 0; d < dim; ++d) values.push_back(StoredElement(format, dim, side, head.data(), t, d));
          return values;
        };
        std::vector<std::vector<float>> rows;
        for (int t = 0; t < kKvBlockPositions; ++t) store(t, static_cast<uint32_t>(t));
        for (int t = 0; t < kKvBlockPositions; ++t) rows.push_back(row(t));
        for (const int stored : {0, 5, 38, 63}) {
          store(stored, 1000);
          for (int t = 0; t < kKvBlockPositions; ++t) {
            if (t == stored) {
              EXPECT_NE(row(t), rows[static_cast<size_t>(t)]);
            } else {
              ASSERT_EQ(row(t), rows[static_cast<size_t>(t)]) << KvFormatName(format) << " row " << t;
            }
          }
          store(stored, static_cast<uint32_t>(stored));
        }
      }
    }
  }
}

TEST(StoreKv, RoundsFloatsAsStoreFloatsDoes) {
  const std::vector<float> x = RandomFloats(40, 1);
  for (const FloatType type : kAllFloatTypes) {
    const KvFormat format{.type = type};
    EXPECT_EQ(KvHeadBytes(format, 40), 64 * 40 * FloatBytes(type));
    for (const KernelTable* table : AvailableKernels()) {
      const std::vector<uint8_t> head = Store(*table, format, KvSide::kKeys, x);
      std::vector<uint8_t> row(static_cast<size_t>(40 * FloatBytes(type)));
      table->store_floats(x.data(), 40, type, row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), head.begin() + 5 * std::ssize(row))) << table->name;
    }
  }
}

// What cannot be stored must not turn into something that looks right.
TEST(StoreKv, AGroupWithNumbersBeyondHalvesBecomesNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const KvFormat& format : CodeKvFormats()) {
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity, -1e6f, 1e9f, 3e38f}) {
      for (const int at : {0, 31, 130, 255}) {
        std::vector<float> x = RandomFloats(256, 2);
        x[static_cast<size_t>(at)] = bad;
        const std::vector<uint8_t> expected = Store(*FindKernels("scalar"), format, KvSide::kKeys, x);
        const StoredRow stored = Decode(format, 256, KvSide::kKeys, expected.data(), 5);
        for (int d = 0; d < 256; ++d) {
          const bool same_group = d / format.group_size == at / format.group_size;
          EXPECT_EQ(std::isnan(stored.values[static_cast<size_t>(d)]), same_group) << bad << " " << d;
        }
        for (const KernelTable* table : AvailableKernels()) {
          EXPECT_EQ(Store(*table, format, KvSide::kKeys, x), expected);
        }
      }
    }
  }
}

TEST(StoreKv, CopiesTheFirstRowsWithTheirScales) {
  constexpr int kDim = 80, kRows = 7;
  for (const KvFormat& format : AllKvFormats()) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      std::vector<uint8_t> from(static_cast<size_t>(KvHeadBytes(format, kDim)), 0xff), to(from.size(), 0xff);
      for (int t = 0; t < kKvBlockPositions; ++t) {
        const std::vector<float> x = RandomFloats(kDim, static_cast<uint32_t>(t));
        Kernels().store_kv(x.data(), kDim, format, side, t, from.data());
      }
      CopyKvRows(format, kDim, from.data(), kRows, to.data());
      for (int t = 0; t < kRows; ++t) {
        for (int d = 0; d < kDim; ++d) {
          ASSERT_EQ(StoredElement(format, kDim, side, to.data(), t, d),
                    StoredElement(format, kDim, side, from.data(), t, d))
              << KvFormatName(format);
        }
      }
    }
  }
}

TEST(StoreKv, FormatsCostWhatTheyPromise) {
  const auto bytes = [](uint8_t bits, uint8_t group, int dim) {
    return KvHeadBytes({.bits = bits, .group_size = group}, dim);
  };
  EXPECT_EQ(bytes(8, 64, 128), 64 * (128 + 2 * 4));
  EXPECT_EQ(bytes(4, 64, 128), 64 * (64 + 2 * 4));
  EXPECT_EQ(bytes(4, 32, 64), 64 * (32 + 2 * 4));
  // Groups that end early: 80 = 64 + 16.
  EXPECT_EQ(bytes(8, 64, 80), 64 * (80 + 2 * 4));
  EXPECT_EQ(bytes(4, 64, 80), 64 * (40 + 2 * 4));
  EXPECT_EQ(bytes(8, 128, 16), 64 * (16 + 4));
  EXPECT_EQ(KvFormatName({.bits = 8, .group_size = 64}), "kv8-g64");
  EXPECT_EQ(KvFormatName({.type = FloatType::kBF16}), "bf16");
}

}  // namespace
}  // namespace nunspark
